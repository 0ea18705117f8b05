-- redis.lua - core/rules.c for a shard of records, in one atomic step.
--
-- KEYS  the shard's meta, then one record per op; the same record may be there twice
-- ARGV  a head {now_ms or 0, epoch for an empty shard, grace_ms, inbox, prefix}, then per op
--       {verb, flags, token, lease_ms, retain_ms, seen, fingerprint bytes} and, if flagged, a value
-- gives now_ms, epoch, fence floor, then per op: status, header of the record as it is now, value
--
-- A record is a string: HEADER, fingerprint, inboxes of those who watch it, value. Its time to live
-- is only for tidiness and ends `grace_ms` late: what counts is judged here. What writes comes after
-- everything that can fail, since Redis does not undo what a failed script has written.

local HEADER = '<Bc16I8i8i8i8i8i8BBI2'
local HEADER_BYTES, INBOX_BYTES, INBOXES_MAX = 69, 8, 1000
local ABANDONED_KEEP_MS = 86400000

local PENDING, DONE = 1, 2
local CLAIMED, CACHED, IN_PROGRESS, ALREADY_DONE, MISMATCH, LOST, OK, ABSENT = 1, 2, 3, 5, 6, 7, 8, 9
local CHANGED, TAKEN_OVER, FAILED = 16, 32, 255
local FORCE, VALUE = 1, 2

local now_ms, new_epoch, grace_ms, inbox, prefix_len = struct.unpack('<i8c8i8c8I2', ARGV[1])
local channel = string.sub(ARGV[1], 35, 34 + prefix_len) .. ':inbox:'
if now_ms == 0 then
    local time = redis.call('TIME')
    now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
end

-- The shard: its epoch, which is lost with the records, and the highest fence that was dropped.
local meta = redis.call('GET', KEYS[1])
local epoch, floor
if meta then
    epoch, floor = struct.unpack('<c8I8', meta)
else
    epoch, floor = new_epoch, 0
    redis.call('SET', KEYS[1], struct.pack('<c8I8', epoch, floor))
end

local function raise_floor(fence)
    if fence <= floor then return end
    floor = fence
    redis.call('SET', KEYS[1], struct.pack('<c8I8', epoch, floor))
end

local function read(key)
    local raw = redis.pcall('GET', key)
    if not raw then return nil end
    if type(raw) == 'table' then return nil, raw.err end
    if #raw < HEADER_BYTES then return nil, 'not a record of once' end
    local r = { key = key }
    r.state, r.token, r.fence, r.claimed_at_ms, r.lease_ms, r.lease_until_ms, r.retain_ms,
        r.done_at_ms, r.fingerprint_len, r.kept, r.inboxes = struct.unpack(HEADER, raw)
    local at = HEADER_BYTES + r.fingerprint_len
    r.fingerprint = string.sub(raw, HEADER_BYTES + 1, at)
    r.watchers = string.sub(raw, at + 1, at + r.inboxes * INBOX_BYTES)
    r.raw = raw
    return r
end

local function value_of(r)
    local at = HEADER_BYTES + r.fingerprint_len + r.inboxes * INBOX_BYTES
    return string.sub(r.raw, at + 1)
end

local function gone_at_ms(r)
    if r.state == DONE then return r.done_at_ms + r.retain_ms end
    if r.state ~= PENDING then return now_ms end
    return r.lease_until_ms + math.max(r.retain_ms, ABANDONED_KEEP_MS)
end

local function live(r)
    if r and r.state ~= 0 and now_ms < gone_at_ms(r) then return r end
    return nil
end

local function version(r)
    if not r then return 0 end
    return r.fence * 2 + (r.state == DONE and 1 or 0)
end

local function header(r)
    return struct.pack(HEADER, r.state, r.token, r.fence, r.claimed_at_ms, r.lease_ms,
        r.lease_until_ms, r.retain_ms, r.done_at_ms, #r.fingerprint, r.kept, #r.watchers / INBOX_BYTES)
end

local function write(r, value)
    local head = header(r)
    redis.call('SET', r.key, head .. r.fingerprint .. r.watchers .. value, 'PX',
        math.max(gone_at_ms(r) - now_ms, 0) + grace_ms)
    return head
end

-- Tells every process that waits here what the record is now ('': nothing). They register anew.
local function wake(before, head)
    local watchers = before and before.watchers or ''
    for at = 1, #watchers, INBOX_BYTES do
        redis.call('PUBLISH', channel .. string.sub(watchers, at, at + INBOX_BYTES - 1),
            string.char(#head) .. head .. before.key)
    end
end

-- What a verb gives: a status, the record's header, its value where the caller wants it.
local function keep(outcome, r)
    return outcome, string.sub(r.raw, 1, HEADER_BYTES), ''
end

local function drop(outcome, r)
    raise_floor(r.fence)
    redis.call('DEL', r.key)
    wake(r, '')
    return outcome + CHANGED, '', ''
end

local function finished(r)
    local head = string.sub(r.raw, 1, HEADER_BYTES)
    if r.kept == 1 then return CACHED, head, value_of(r) end
    return ALREADY_DONE, head, ''
end

local function grant(stored, q, outcome)
    local fence = math.max(floor, stored and stored.fence or 0) + 1
    local r = {
        key = q.key, state = PENDING, token = q.token, fence = math.max(fence, now_ms * 1000),
        claimed_at_ms = now_ms, lease_ms = q.lease_ms, lease_until_ms = now_ms + q.lease_ms,
        retain_ms = q.retain_ms, done_at_ms = 0, fingerprint = q.fingerprint, kept = 0, watchers = '',
    }
    local head = write(r, '')
    wake(stored, head)
    return outcome + CHANGED, head, ''
end

local function busy(r)
    if r.lease_until_ms - now_ms <= r.lease_ms then return keep(IN_PROGRESS, r) end
    r.lease_until_ms = now_ms + r.lease_ms
    return IN_PROGRESS + CHANGED, write(r, ''), ''
end

local function lost(r)
    return LOST, string.sub(r.raw, 1, HEADER_BYTES), r.state == DONE and value_of(r) or ''
end

local function claim(stored, q)
    local r = live(stored)
    if q.force or not r then return grant(stored, q, CLAIMED) end
    if r.fingerprint ~= q.fingerprint then return MISMATCH, '', '' end
    if r.state == DONE then return finished(r) end
    if r.token == q.token then return keep(CLAIMED, r) end
    if now_ms < r.lease_until_ms then return busy(r) end
    return grant(stored, q, CLAIMED + TAKEN_OVER)
end

local function publish(stored, q)
    local r = live(stored)
    if not r then return LOST, '', '' end
    if r.token ~= q.token then return lost(r) end
    if r.state == DONE then
        local same = (r.kept == 1) == (q.value ~= nil) and (not q.value or value_of(r) == q.value)
        if same then return keep(OK, r) end
        return lost(r)
    end
    local watched = { key = r.key, watchers = r.watchers }
    r.state, r.done_at_ms, r.kept, r.watchers = DONE, now_ms, q.value and 1 or 0, ''
    if q.retain_ms >= 0 then r.retain_ms = q.retain_ms end
    local head = write(r, q.value or '')
    wake(watched, head)
    return OK + CHANGED, head, ''
end

local function release(stored, q)
    local r = live(stored)
    if not r then return LOST, '', '' end
    if r.state == DONE or r.token ~= q.token then return lost(r) end
    return drop(OK, r)
end

local function renew(stored, q)
    local r = live(stored)
    if not r then return LOST, '', '' end
    if r.state == DONE or r.token ~= q.token then return lost(r) end
    if q.lease_ms >= 0 then r.lease_ms = q.lease_ms end
    r.lease_until_ms = now_ms + r.lease_ms
    return OK + CHANGED, write(r, ''), ''
end

local function forget(stored, q)
    local r = live(stored)
    if not r then
        if stored and stored.state ~= 0 then return drop(ABSENT, stored) end
        return ABSENT, '', ''
    end
    if not q.force and r.state == PENDING and now_ms < r.lease_until_ms then return keep(IN_PROGRESS, r) end
    return drop(OK, r)
end

local function peek(stored)
    local r = live(stored)
    if not r then return ABSENT, '', '' end
    if r.state == DONE then return finished(r) end
    return keep(IN_PROGRESS, r)
end

-- Registers the asking process unless there is something to tell already.
local function watch(stored, q)
    local r = live(stored)
    if version(r) == q.seen then
        local at = stored or {
            key = q.key, state = 0, token = q.token, fence = 0, claimed_at_ms = 0, lease_ms = 0,
            lease_until_ms = 0, retain_ms = 0, done_at_ms = 0, fingerprint = '', fingerprint_len = 0,
            kept = 0, watchers = '', inboxes = 0, raw = string.rep('\0', HEADER_BYTES),
        }
        if not string.find(at.watchers, inbox, 1, true) and at.inboxes < INBOXES_MAX then
            local value = value_of(at)
            at.watchers = at.watchers .. inbox
            local raw = header(at) .. at.fingerprint .. at.watchers .. value
            if stored then redis.call('SET', at.key, raw, 'KEEPTTL')
            else redis.call('SET', at.key, raw, 'PX', grace_ms) end
        end
    end
    return peek(stored)
end

local function expire(stored)
    if not stored or live(stored) then return OK, '', '' end
    if stored.state == 0 then return OK, '', '' end
    return drop(ABSENT, stored)
end

-- As enum verb has them.
local verbs = { [0] = claim, publish, release, renew, forget, peek, watch, expire }
local PING = 10

local answers = { now_ms, epoch, 0 }
local arg = 2
for i = 2, #KEYS do
    local verb, flags, token, lease_ms, retain_ms, seen, fingerprint_len =
        struct.unpack('<BBc16i8i8I8B', ARGV[arg])
    local q = {
        key = KEYS[i], token = token, lease_ms = lease_ms, retain_ms = retain_ms, seen = seen,
        fingerprint = string.sub(ARGV[arg], 44, 43 + fingerprint_len),
        force = flags % 2 >= FORCE,
    }
    arg = arg + 1
    if flags >= VALUE then
        q.value = ARGV[arg]
        arg = arg + 1
    end
    local stored, failure
    if verb ~= PING then stored, failure = read(KEYS[i]) end
    if failure then
        answers[i + 2] = string.char(FAILED) .. failure
    elseif verb == PING then
        answers[i + 2] = string.char(OK)
    else
        local status, head, value = verbs[verb](stored, q)
        answers[i + 2] = string.char(status) .. head .. value
    end
end
answers[3] = floor
return answers
