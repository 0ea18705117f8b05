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
--
-- Numbers here are doubles, whole up to 2^53. Times in ms with ten years added, fences (us since
-- 1970) and versions (twice a fence) stay below it until the year 2112.
--
-- Redis runs all of a script anew each time: every function is made, with every local that it uses
-- from outside, and numbers are packed slowly. So what is asked all day, a new claim and its publish,
-- goes a short way: the loop at the end puts strings together. Everything else is for rules(), which
-- has all that it needs inside and is made when it is needed. Both ways give the same records and
-- answers.

local call, pack, unpack = redis.call, struct.pack, struct.unpack

local now_ms, new_epoch, grace_ms, inbox, prefix_len = unpack('<i8c8i8c8I2', ARGV[1])
if now_ms == 0 then
    local time = call('TIME')
    now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
end

-- The shard: its epoch, which is lost with the records, and the highest fence that was dropped.
local meta = call('GET', KEYS[1])
local epoch, floor
if meta then
    if #meta ~= 16 then return redis.error_reply('CORRUPT not the meta of a shard: ' .. KEYS[1]) end
    epoch, floor = unpack('<c8I8', meta)
else
    epoch, floor = new_epoch, 0
    call('SET', KEYS[1], pack('<c8I8', epoch, floor))
end

local granted = {} -- what new claims have in common

local function rules()
    local HEADER = '<Bc16I8i8i8i8i8i8BBI2'
    local HEADER_BYTES, INBOX_BYTES, INBOXES_MAX = 69, 8, 1000
    local NEWS_BYTES_MAX = 16384
    local ABANDONED_KEEP_MS = 86400000

    local PENDING, DONE = 1, 2
    local CLAIMED, CACHED, IN_PROGRESS, ALREADY_DONE = 1, 2, 3, 5
    local MISMATCH, LOST, OK, ABSENT = 6, 7, 8, 9
    local CHANGED, TAKEN_OVER, FAILED = 16, 32, 255
    local FORCE = 1


    local call, pcall, pack, unpack = redis.call, redis.pcall, struct.pack, struct.unpack
    local sub, char = string.sub, string.char

    local channel = sub(ARGV[1], 35, 34 + prefix_len) .. ':inbox:'

    local function raise_floor(fence)
        if fence <= floor then return end
        floor, granted = fence, {}
        call('SET', KEYS[1], pack('<c8I8', epoch, floor))
    end

    -- The record and the request of the op in hand. Filled anew for each: a table per op would cost
    -- more than everything else that is done here.
    local r = {
        key = '', raw = '', state = 0, token = '', fence = 0, claimed_at_ms = 0, lease_ms = 0,
        lease_until_ms = 0, retain_ms = 0, done_at_ms = 0, kept = 0, fingerprint = '', watchers = '',
    }
    local q = {
        token = '', lease_ms = 0, retain_ms = 0, seen = 0, fingerprint = '', force = false,
        value = false,
    }

    local function set_absent(key)
        r.key, r.raw, r.state, r.token, r.fence = key, '', 0, q.token, 0
        r.claimed_at_ms, r.lease_ms, r.lease_until_ms, r.retain_ms, r.done_at_ms = 0, 0, 0, 0, 0
        r.kept, r.fingerprint, r.watchers = 0, '', ''
    end

    -- Is there one? Or what is wrong with it.
    local function take(key, raw)
        if not raw then
            set_absent(key)
            return false
        end
        if type(raw) == 'table' then return false, raw.err end
        if #raw < HEADER_BYTES then return false, 'not a record of once' end
        local fingerprint_len, inboxes
        r.key, r.raw = key, raw
        r.state, r.token, r.fence, r.claimed_at_ms, r.lease_ms, r.lease_until_ms, r.retain_ms,
            r.done_at_ms, fingerprint_len, r.kept, inboxes = unpack(HEADER, raw)
        r.fingerprint, r.watchers = '', ''
        local at = HEADER_BYTES + fingerprint_len
        if r.state > DONE or #raw < at + inboxes * INBOX_BYTES then
            return false, 'not a record of once'
        end
        if fingerprint_len > 0 then r.fingerprint = sub(raw, HEADER_BYTES + 1, at) end
        if inboxes > 0 then r.watchers = sub(raw, at + 1, at + inboxes * INBOX_BYTES) end
        return true
    end

    local function value()
        if r.kept == 0 then return '' end
        return sub(r.raw, HEADER_BYTES + #r.fingerprint + #r.watchers + 1)
    end

    local function gone_at_ms()
        if r.state == DONE then return r.done_at_ms + r.retain_ms end
        local keep_ms = r.retain_ms > ABANDONED_KEEP_MS and r.retain_ms or ABANDONED_KEEP_MS
        return r.lease_until_ms + keep_ms
    end

    local function is_live()
        return r.state ~= 0 and now_ms < gone_at_ms()
    end

    local function header()
        return pack(HEADER, r.state, r.token, r.fence, r.claimed_at_ms, r.lease_ms, r.lease_until_ms,
            r.retain_ms, r.done_at_ms, #r.fingerprint, r.kept, #r.watchers / INBOX_BYTES)
    end

    -- Numbers become text slowly, and those of a batch are mostly the same.
    local as_text = {}
    local function text(number)
        local t = as_text[number]
        if not t then
            t = string.format('%.0f', number)
            as_text[number] = t
        end
        return t
    end

    local function write(content)
        local head = header()
        local left_ms = gone_at_ms() - now_ms
        call('SET', r.key, head .. r.fingerprint .. r.watchers .. content, 'PX',
            text((left_ms > 0 and left_ms or 0) + grace_ms))
        return head
    end

    -- Tells every process that waits here what the record is now ('': nothing), with an answer that
    -- is not too long to be sent to all of them. They register anew. A message may be forbidden (an
    -- ACL without our channels): the record is written already, and those who wait look again by
    -- themselves.
    local function wake(watchers, head, content)
        if watchers == '' then return end
        local whole = head ~= '' and #content <= NEWS_BYTES_MAX
        local news = pack('<BI2', whole and 1 or 0, #r.key) .. r.key .. head
        if whole then news = news .. r.fingerprint .. content end
        for at = 1, #watchers, INBOX_BYTES do
            pcall('PUBLISH', channel .. sub(watchers, at, at + INBOX_BYTES - 1), news)
        end
    end

    -- What a verb gives: a status, the record's header, its value where the caller wants it.
    local function keep(outcome)
        return outcome, sub(r.raw, 1, HEADER_BYTES), ''
    end

    local function drop(outcome)
        raise_floor(r.fence)
        call('DEL', r.key)
        wake(r.watchers, '', '')
        return outcome + CHANGED, '', ''
    end

    local function finished()
        return r.kept == 1 and CACHED or ALREADY_DONE, sub(r.raw, 1, HEADER_BYTES), value()
    end

    local function lost()
        return LOST, sub(r.raw, 1, HEADER_BYTES), value()
    end

    local function grant(outcome)
        local watchers = r.watchers
        local used = r.fence > floor and r.fence or floor
        local now_us = now_ms * 1000
        r.state, r.token, r.fence = PENDING, q.token, now_us > used and now_us or used + 1
        r.claimed_at_ms, r.lease_ms, r.lease_until_ms = now_ms, q.lease_ms, now_ms + q.lease_ms
        r.retain_ms, r.done_at_ms, r.kept = q.retain_ms, 0, 0
        r.fingerprint, r.watchers = q.fingerprint, ''
        local head = write('')
        wake(watchers, head, '')
        return outcome + CHANGED, head, ''
    end

    local function busy()
        if r.lease_until_ms - now_ms <= r.lease_ms then return keep(IN_PROGRESS) end
        r.lease_until_ms = now_ms + r.lease_ms
        return IN_PROGRESS + CHANGED, write(''), ''
    end

    local function claim()
        if q.force or not is_live() then return grant(CLAIMED) end
        if r.fingerprint ~= q.fingerprint then return MISMATCH, '', '' end
        if r.state == DONE then return finished() end
        if r.token == q.token then return keep(CLAIMED) end
        if now_ms < r.lease_until_ms then return busy() end
        return grant(CLAIMED + TAKEN_OVER)
    end

    local function same_value()
        if not q.value then return r.kept == 0 end
        return r.kept == 1 and value() == q.value
    end

    local function publish()
        if not is_live() then return LOST, '', '' end
        if r.state == DONE and r.token == q.token and same_value() then return keep(OK) end
        if r.state == DONE or r.token ~= q.token then return lost() end
        local watchers = r.watchers
        r.state, r.done_at_ms, r.kept, r.watchers = DONE, now_ms, q.value and 1 or 0, ''
        if q.retain_ms >= 0 then r.retain_ms = q.retain_ms end
        local head = write(q.value or '')
        wake(watchers, head, q.value or '')
        return OK + CHANGED, head, ''
    end

    local function release()
        if not is_live() then return LOST, '', '' end
        if r.state == DONE or r.token ~= q.token then return lost() end
        return drop(OK)
    end

    local function renew()
        if not is_live() then return LOST, '', '' end
        if r.state == DONE or r.token ~= q.token then return lost() end
        if q.lease_ms >= 0 then r.lease_ms = q.lease_ms end
        r.lease_until_ms = now_ms + r.lease_ms
        return OK + CHANGED, write(''), ''
    end

    local function forget()
        if not is_live() then
            if r.state ~= 0 then return drop(ABSENT) end
            return ABSENT, '', ''
        end
        local owned = r.state == PENDING and now_ms < r.lease_until_ms
        if owned and not q.force then return keep(IN_PROGRESS) end
        return drop(OK)
    end

    local function peek()
        if not is_live() then return ABSENT, '', '' end
        if r.state == DONE then return finished() end
        return keep(IN_PROGRESS)
    end

    local function version()
        if not is_live() then return 0 end
        return r.fence * 2 + (r.state == DONE and 1 or 0)
    end

    -- Leaves the asking process's inbox unless there is something to tell already. A record that is
    -- not there is written as one that counts for nothing.
    local function watch()
        local known = string.find(r.watchers, inbox, 1, true)
            or #r.watchers >= INBOXES_MAX * INBOX_BYTES
        if version() ~= q.seen or known then return peek() end
        local content, there = value(), #r.raw > 0
        r.watchers = r.watchers .. inbox
        r.raw = header() .. r.fingerprint .. r.watchers .. content
        if there then
            call('SET', r.key, r.raw, 'KEEPTTL')
        else
            call('SET', r.key, r.raw, 'PX', text(grace_ms))
        end
        return peek()
    end

    local function expire()
        if r.state == 0 or is_live() then return OK, '', '' end
        return drop(ABSENT)
    end

    -- As enum verb has them.
    local verbs = { [0] = claim, publish, release, renew, forget, peek, watch, expire }

    return function(key, raw, op, content)
        local verb, flags, token, lease_ms, retain_ms, seen, fingerprint_len =
            unpack('<BBc16i8i8I8B', op)
        q.token, q.lease_ms, q.retain_ms, q.seen = token, lease_ms, retain_ms, seen
        q.fingerprint = fingerprint_len > 0 and sub(op, 44, 43 + fingerprint_len) or ''
        q.force, q.value = flags % 2 == FORCE, content
        local _, failure = take(key, raw)
        if failure then return char(FAILED) .. failure end
        local status, head, answer = verbs[verb]()
        return char(status) .. head .. answer
    end
end

local CLAIM, PUBLISH, PING, VALUE = 0, 1, 10, 2 -- as enum verb has them; a flag
local PENDING, HEADER_BYTES, ABANDONED_KEEP_MS = 1, 69, 86400000
local CLAIMED, PUBLISHED, PINGED = '\17', '\24', '\8' -- outcomes, with CHANGED

local sub, byte, pcall = string.sub, string.byte, redis.pcall
local answers = { now_ms, epoch, 0 }
local published, by_rules = {}
local at = 2
for i = 2, #KEYS do
    local key, op = KEYS[i], ARGV[at]
    local verb, flags = byte(op, 1, 2)
    local content = flags >= VALUE and ARGV[at + 1]
    local raw, answer = verb ~= PING and pcall('GET', key)
    at = at + (content and 2 or 1)

    if verb == PING then
        answer = PINGED

    -- What follows the token is the same for the same terms (lease, retention, length of the
    -- fingerprint), as long as the floor is.
    elseif verb == CLAIM and flags == 0 and not raw then
        local terms = sub(op, 19, 43)
        local rest = granted[terms]
        if not rest then
            local lease_ms, retain_ms, _, fingerprint_len = unpack('<i8i8I8B', terms)
            local fence = now_ms * 1000 > floor and now_ms * 1000 or floor + 1
            local keep_ms = retain_ms > ABANDONED_KEEP_MS and retain_ms or ABANDONED_KEEP_MS
            rest = {
                pack('<I8i8i8i8i8i8BBI2', fence, now_ms, lease_ms, now_ms + lease_ms, retain_ms, 0,
                    fingerprint_len, 0, 0),
                string.format('%.0f', lease_ms + keep_ms + grace_ms),
            }
            granted[terms] = rest
        end
        local record = '\1' .. sub(op, 3, 18) .. rest[1] .. sub(op, 44)
        call('SET', key, record, 'PX', rest[2])
        answer = CLAIMED .. record

    -- By the owner, in time, with the retention that was granted (less than 0), and nobody to wake.
    elseif verb == PUBLISH and flags == VALUE and type(raw) == 'string' and #raw >= HEADER_BYTES
        and byte(raw) == PENDING and sub(raw, 2, 17) == sub(op, 3, 18) and byte(op, 34) >= 128 then
        local until_ms, retain_ms, _, fingerprint_len, _, inboxes = unpack('<i8i8i8BBI2', raw, 42)
        local keep_ms = retain_ms > ABANDONED_KEEP_MS and retain_ms or ABANDONED_KEEP_MS
        local whole = #raw == HEADER_BYTES + fingerprint_len
        if inboxes == 0 and now_ms < until_ms + keep_ms and whole then
            local terms = retain_ms * 256 + fingerprint_len
            local rest = published[terms]
            if not rest then
                rest = {
                    pack('<i8BBI2', now_ms, fingerprint_len, 1, 0),
                    string.format('%.0f', retain_ms + grace_ms),
                }
                published[terms] = rest
            end
            local head = '\2' .. sub(raw, 2, 57) .. rest[1]
            call('SET', key, head .. sub(raw, HEADER_BYTES + 1) .. content, 'PX', rest[2])
            answer = PUBLISHED .. head
        end
    end

    if not answer then
        by_rules = by_rules or rules()
        answer = by_rules(key, raw, op, content)
    end
    answers[i + 2] = answer
end
answers[3] = floor
return answers
