-- redis.lua - core/rules.c for a shard of records, in one atomic step.
--
-- KEYS  the shard
-- ARGV  a head {now_ms or 0, epoch for an empty shard, inbox, prefix, lists that may be noted in},
--       then per op its frame, {verb, flags, list, token, lease_ms, retain_ms, seen, fingerprint
--       bytes} and, if flagged, a value; no frame is there twice
-- gives now_ms, epoch, fence floor, then per op: status, header of the record as it is now, value
--
-- A shard is a hash, so that what a step reads it reads by one HMGET, and what it writes mostly by
-- one HSET: a command per record would cost more than everything else. Its fields:
--
--   frame             a record: HEADER, fingerprint, inboxes of those who watch it, value
--   ''                META
--   '\0' list         LIST: the numbers of its first entry and of the next one
--   '\0' list number  an ENTRY {due_ms, claimed_at_ms, frames}
--
-- Fields do not go by themselves. So every grant is noted: an entry per step and list, taken out when
-- its time has come. What is still alive then is noted anew; what was granted again since has an
-- entry of its own. The shard as a whole goes when nobody has needed it for a day longer than its
-- last record. An op whose frame begins with a zero is about the whole shard, and comes alone.
--
-- What writes comes after everything that can fail, since Redis does not undo what a failed script
-- has written.
--
-- Numbers here are doubles, whole up to 2^53. Times in ms with ten years added, fences (us since
-- 1970) and versions (twice a fence) stay below it until the year 2112.
--
-- Redis runs all of a script anew each time: every function is made, with every local that it uses
-- from outside, and numbers are packed slowly. So what is asked all day, a new claim and its publish,
-- goes a short way: the loop at the end puts strings together. Everything else is for rules(), which
-- has all that it needs inside and is made when it is needed. Both ways give the same records and
-- answers.

local call, pack, unpack, sub, byte = redis.call, struct.pack, struct.unpack, string.sub, string.byte

local META = '<c8I8i8' -- epoch, lost with the records; highest fence that was dropped; needed until
local LIST, ENTRY = '<I8I8', '<i8i8'
local DAY_MS = 86400000
local VALUE = 2 -- a flag

local now_ms, new_epoch, inbox, prefix_len = unpack('<i8c8c8I2', ARGV[1])
if now_ms == 0 then
    local time = call('TIME')
    now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
end

local shard = KEYS[1]
local wanted = { '' }
for i = 27 + prefix_len, #ARGV[1] do wanted[#wanted + 1] = '\0' .. sub(ARGV[1], i, i) end
local lists = #wanted - 1 -- how many
local ops, values = {}, {}
local count, at = 0, 2
while ARGV[at] do
    local op = ARGV[at + 1]
    count = count + 1
    wanted[lists + 1 + count], ops[count] = ARGV[at], op
    at = at + 2
    if byte(op, 2) % 4 >= VALUE then
        values[count] = ARGV[at]
        at = at + 1
    end
end
local raws = call('HMGET', shard, _G.unpack(wanted))

local epoch, floor, until_ms = new_epoch, 0, 0
local meta_changed = not raws[1]
if raws[1] then
    if #raws[1] ~= 24 then return redis.error_reply('CORRUPT not the meta of a shard: ' .. shard) end
    epoch, floor, until_ms = unpack(META, raws[1])
end

-- What is to be written at the end.
local fields, field_count = {}, 0
local due = {} -- by list: what was granted
local granted = {} -- what new claims have in common

local function needed_until(gone_at_ms)
    if gone_at_ms <= until_ms then return end
    until_ms = gone_at_ms + DAY_MS
    meta_changed = true
end

-- In `life_ms` at the latest somebody looks whether it is still there.
local lengths = {}
local function note(list, frame, life_ms)
    local length, noted = lengths[#frame], due[list]
    if not length then
        length = pack('<I2', #frame)
        lengths[#frame] = length
    end
    if not noted then
        noted = { count = 0, life_ms = 0 }
        due[list] = noted
    end
    noted[noted.count + 1], noted[noted.count + 2] = length, frame
    noted.count = noted.count + 2
    if life_ms > noted.life_ms then noted.life_ms = life_ms end
end

local function rules()
    local HEADER = '<Bc16I8i8i8i8i8i8BBI2'
    local HEADER_BYTES, INBOX_BYTES, INBOXES_MAX = 69, 8, 1000
    local NEWS_BYTES_MAX = 16384
    local META, LIST, ENTRY = '<c8I8i8', '<I8I8', '<i8i8'
    local ABANDONED_KEEP_MS, PLACEHOLDER_MS = 86400000, 60000
    local LISTS, ENTRIES_MAX, LOOK_COUNT = 12, 8, 100 -- the last two in one step

    local PENDING, DONE = 1, 2
    local CLAIMED, CACHED, IN_PROGRESS, ALREADY_DONE = 1, 2, 3, 5
    local MISMATCH, LOST, OK, ABSENT = 6, 7, 8, 9
    local CHANGED, TAKEN_OVER, FAILED = 16, 32, 255
    local FORCE, WAITS = 1, 4
    local EXPIRE = 7 -- as enum verb has it

    local call, pcall, pack, unpack = redis.call, redis.pcall, struct.pack, struct.unpack
    local sub, char = string.sub, string.char

    local channel = sub(ARGV[1], 27, 26 + prefix_len) .. ':inbox:'

    local function raise_floor(fence)
        if fence <= floor then return end
        floor, granted = fence, {}
        call('HSET', shard, '', pack(META, epoch, floor, until_ms))
    end

    -- The record and the request of the op in hand. Filled anew for each: a table per op would cost
    -- more than everything else that is done here.
    local r = {
        key = '', raw = '', state = 0, token = '', fence = 0, claimed_at_ms = 0, lease_ms = 0,
        lease_until_ms = 0, retain_ms = 0, done_at_ms = 0, kept = 0, fingerprint = '', watchers = '',
    }
    local q = {
        list = 0, token = '', lease_ms = 0, retain_ms = 0, seen = 0, fingerprint = '', force = false,
        waits = false, value = false,
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
        if r.state == 0 then return r.claimed_at_ms + PLACEHOLDER_MS end
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

    local function write(content)
        local head = header()
        call('HSET', shard, r.key, head .. r.fingerprint .. r.watchers .. content)
        needed_until(gone_at_ms())
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
        call('HDEL', shard, r.key)
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
        note(q.list, r.key, q.lease_ms + q.retain_ms)
        wake(watchers, head, '')
        return outcome + CHANGED, head, ''
    end

    -- Is the asking process told of the next change? Those beyond so many look by themselves.
    local function is_told()
        return string.find(r.watchers, inbox, 1, true) or #r.watchers >= INBOXES_MAX * INBOX_BYTES
    end

    -- A lease that ends later than it can was granted by a clock that has gone back since.
    local function busy()
        local late = r.lease_until_ms - now_ms > r.lease_ms
        local tell = q.waits and not is_told()
        if late then r.lease_until_ms = now_ms + r.lease_ms end
        if tell then r.watchers = r.watchers .. inbox end
        if not late and not tell then return keep(IN_PROGRESS) end
        return IN_PROGRESS + (late and CHANGED or 0), write(''), ''
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
        if version() ~= q.seen or is_told() then return peek() end
        local content = value()
        if #r.raw == 0 then
            r.claimed_at_ms = now_ms
            note(q.list, r.key, PLACEHOLDER_MS)
        end
        r.watchers = r.watchers .. inbox
        r.raw = write(content) .. r.fingerprint .. r.watchers .. content
        return peek()
    end

    local function expire()
        if r.state == 0 or is_live() then return OK, '', '' end
        return drop(ABSENT)
    end

    local function entry_name(list, number)
        return '\0' .. char(list) .. pack('<I8', number)
    end

    -- Removes what is gone of an entry: how many that were, and an entry for the others. Those with
    -- another claimed_at_ms are in one already.
    local function expire_entry(entry)
        local _, claimed_at_ms, next_at = unpack(ENTRY, entry)
        local names, gone, alive = {}, {}, {}
        local highest, latest_ms, name = 0, 0, nil
        while next_at <= #entry do
            name, next_at = unpack('<I2c0', entry, next_at)
            names[#names + 1] = name
        end
        local found = call('HMGET', shard, _G.unpack(names))
        for i = 1, #names do
            if take(names[i], found[i]) and r.claimed_at_ms == claimed_at_ms then
                local gone_ms = gone_at_ms()
                if now_ms >= gone_ms then
                    gone[#gone + 1] = names[i]
                    if r.fence > highest then highest = r.fence end
                    wake(r.watchers, '', '')
                else
                    alive[#alive + 1] = pack('<I2', #names[i]) .. names[i]
                    if gone_ms > latest_ms then latest_ms = gone_ms end
                end
            end
        end
        raise_floor(highest)
        if #gone > 0 then call('HDEL', shard, _G.unpack(gone)) end
        return #gone, #alive > 0 and pack(ENTRY, latest_ms, claimed_at_ms) .. table.concat(alive)
    end

    -- How many were removed, and whether more may be due.
    local function expire_due()
        local removed, entries = 0, 0
        for list = 0, LISTS - 1 do
            local ends = call('HGET', shard, '\0' .. char(list))
            local first, next_one = 0, 0
            if ends then first, next_one = unpack(LIST, ends) end
            while first < next_one and entries < ENTRIES_MAX do
                local name = entry_name(list, first)
                local entry = call('HGET', shard, name)
                if entry and unpack(ENTRY, entry) > now_ms then break end
                local count, rest = expire_entry(entry or pack(ENTRY, 0, 0))
                removed, entries, first = removed + count, entries + 1, first + 1
                call('HSET', shard, '\0' .. char(list), pack(LIST, first, next_one + (rest and 1 or 0)))
                if rest then
                    call('HSET', shard, entry_name(list, next_one), rest)
                    next_one = next_one + 1
                end
                call('HDEL', shard, name)
            end
        end
        return pack('<BI4B', OK, removed, entries < ENTRIES_MAX and 0 or 1)
    end

    -- Some records, behind the cursor to go on with (0: that was all): frame, header, bytes of value.
    local function look(cursor)
        local found = call('HSCAN', shard, string.format('%.0f', cursor), 'COUNT', LOOK_COUNT)
        local rows = { pack('<BI8', OK, tonumber(found[1])) }
        for i = 1, #found[2], 2 do
            local name = found[2][i]
            if name ~= '' and byte(name) ~= 0 and take(name, found[2][i + 1]) then
                local before = HEADER_BYTES + #r.fingerprint + #r.watchers
                rows[#rows + 1] = pack('<I2', #name) .. name .. sub(r.raw, 1, HEADER_BYTES)
                    .. pack('<I4', #r.raw - before)
            end
        end
        return table.concat(rows)
    end

    -- As enum verb has them.
    local verbs = { [0] = claim, publish, release, renew, forget, peek, watch, expire }

    return function(key, raw, op, content)
        local verb, flags, list, token, lease_ms, retain_ms, seen, fingerprint_len =
            unpack('<BBBc16i8i8I8B', op)
        if byte(key) == 0 and verb == EXPIRE then return expire_due() end
        if byte(key) == 0 then return look(seen) end
        q.list, q.token, q.lease_ms, q.retain_ms, q.seen = list, token, lease_ms, retain_ms, seen
        q.fingerprint = fingerprint_len > 0 and sub(op, 45, 44 + fingerprint_len) or ''
        q.force, q.waits, q.value = flags % 2 == FORCE, flags >= WAITS, content
        local _, failure = take(key, raw)
        if failure then return char(FAILED) .. failure end
        local status, head, answer = verbs[verb]()
        return char(status) .. head .. answer
    end
end

local CLAIM, PUBLISH, PING = 0, 1, 10 -- as enum verb has them
local PENDING, HEADER_BYTES, ABANDONED_KEEP_MS = 1, 69, 86400000
local CLAIMED, PUBLISHED, PINGED = '\17', '\24', '\8' -- outcomes, with CHANGED

local answers = { now_ms, epoch, 0 }
local published, by_rules = {}
for i = 1, count do
    local key, raw, op, content = wanted[lists + 1 + i], raws[lists + 1 + i], ops[i], values[i]
    local answer
    local verb, flags, list = byte(op, 1, 3)

    if verb == PING then
        answer = PINGED

    -- What follows the token is the same for the same terms (lease, retention, length of the
    -- fingerprint), as long as the floor is.
    elseif verb == CLAIM and flags % 2 == 0 and not raw then
        local terms = sub(op, 20, 44)
        local rest = granted[terms]
        if not rest then
            local lease_ms, retain_ms, _, fingerprint_len = unpack('<i8i8I8B', terms)
            local fence = now_ms * 1000 > floor and now_ms * 1000 or floor + 1
            local keep_ms = retain_ms > ABANDONED_KEEP_MS and retain_ms or ABANDONED_KEEP_MS
            rest = {
                pack('<I8i8i8i8i8i8BBI2', fence, now_ms, lease_ms, now_ms + lease_ms, retain_ms, 0,
                    fingerprint_len, 0, 0),
                lease_ms + retain_ms,
            }
            granted[terms] = rest
            needed_until(now_ms + lease_ms + keep_ms)
        end
        local record = '\1' .. sub(op, 4, 19) .. rest[1] .. sub(op, 45)
        fields[field_count + 1], fields[field_count + 2] = key, record
        field_count = field_count + 2
        note(list, key, rest[2])
        answer = CLAIMED .. record

    -- By the owner, in time, with the retention that was granted (less than 0), and nobody to wake.
    elseif verb == PUBLISH and flags == VALUE and raw and #raw >= HEADER_BYTES
        and byte(raw) == PENDING and sub(raw, 2, 17) == sub(op, 4, 19) and byte(op, 35) >= 128 then
        local until_ms, retain_ms, _, fingerprint_len, _, inboxes = unpack('<i8i8i8BBI2', raw, 42)
        local keep_ms = retain_ms > ABANDONED_KEEP_MS and retain_ms or ABANDONED_KEEP_MS
        local whole = #raw == HEADER_BYTES + fingerprint_len
        if inboxes == 0 and now_ms < until_ms + keep_ms and whole then
            local terms = retain_ms * 256 + fingerprint_len
            local rest = published[terms]
            if not rest then
                rest = pack('<i8BBI2', now_ms, fingerprint_len, 1, 0)
                published[terms] = rest
                needed_until(now_ms + retain_ms)
            end
            local head = '\2' .. sub(raw, 2, 57) .. rest
            fields[field_count + 1] = key
            fields[field_count + 2] = head .. sub(raw, HEADER_BYTES + 1) .. content
            field_count = field_count + 2
            answer = PUBLISHED .. head
        end
    end

    if not answer then
        by_rules = by_rules or rules()
        answer = by_rules(key, raw, op, content)
    end
    answers[i + 3] = answer
end

needed_until(now_ms)
if meta_changed then
    fields[field_count + 1], fields[field_count + 2] = '', pack(META, epoch, floor, until_ms)
    field_count = field_count + 2
end
for i = 1, lists do
    local name = wanted[1 + i]
    local noted = due[byte(name, 2)]
    if noted then
        local first, next_one = 0, 0
        if raws[1 + i] then first, next_one = unpack(LIST, raws[1 + i]) end
        fields[field_count + 1], fields[field_count + 2] = name, pack(LIST, first, next_one + 1)
        fields[field_count + 3] = name .. pack('<I8', next_one)
        fields[field_count + 4] = pack(ENTRY, now_ms + noted.life_ms, now_ms) .. table.concat(noted)
        field_count = field_count + 4
    end
end
if field_count > 0 then call('HSET', shard, _G.unpack(fields)) end
if meta_changed then call('PEXPIRE', shard, until_ms - now_ms) end
answers[3] = floor
return answers
