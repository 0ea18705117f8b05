-- redis.lua - core/rules.c for a shard of records, in one atomic step.
--
-- KEYS  the shard; if something is to be accepted, the buffer of the shard and its index, too
-- ARGV  HEAD and a prefix; the fields to read: '' and a frame per op, none twice; then runs of ops
--       that are alike, each a RUN, the lengths of its frames, and per op
--       claim    what of the record is the caller's: retain_ms, lease_ms, token, fingerprint
--       publish  a token, a value; the retention is as granted
--       other    an OP, fingerprint, and a value if flagged
--       accept   they have a step of their own, and are told kind by kind: '', the names of all entries
--                of a run, the fields of their keys, what is to be stored of them (names, keys if they
--                have some, runs), tokens, values; behind the lengths, the highest id and the lowest
-- gives now_ms, epoch, fence floor, fence of a new claim, then per op: status, header of the record as
--       it is now, value; for short: of a claim of a new key the status alone, of a publish of what
--       was just pending that record, which begins like no status that a publish can have; of an
--       accept whose key leads to another entry, a list: how that one is told. After those to accepts,
--       the epoch of the buffer.
--
-- A shard is a hash, so that what a step reads it reads by one HMGET, and what it writes mostly by
-- one HSET: a command per record would cost more than everything else. Its fields:
--
--   frame             a record: HEADER, fingerprint, inboxes of those who watch it, value
--   ''                META
--   '\0' list         LIST: the numbers of its first entry and of the next one, and when that is due
--   '\0' list number  an ENTRY, lengths, frames
--
-- Fields do not go by themselves. So whatever is granted or published is noted: an entry per run, in a
-- list of those that are due about as soon, taken out when its time has come, by later notes in the
-- same list and by the routine sweep. What is still there then, as it was noted, is noted anew. All
-- that is late by a grace: a clock that is set back a little brings nobody back to life. The shard as
-- a whole goes when nobody has needed it for a day longer than its last record.
--
-- An op whose frame begins with a zero is about the whole shard, and comes alone.
--
-- What writes comes after everything that can fail, since Redis does not undo what a failed script
-- has written.
--
-- Numbers here are doubles, whole up to 2^53. Times in ms with ten years added, fences (us since
-- 1970) and versions (twice a fence) stay below it until the year 2112.
--
-- Redis runs all of a script anew each time: every function is made, with every local that it uses
-- from outside, and every string that is made is hashed. So what is asked all day, a new claim and
-- its publish, goes a short way with few strings, in the loops at the end. Everything else is for
-- rules(), which has all that it needs inside and is made when it is needed. Both ways give the same
-- records.

local call, pack, unpack, byte, find, sub =
    redis.call, struct.pack, struct.unpack, string.byte, string.find, string.sub

local META = '<c8I8i8' -- epoch, lost with the records; highest fence that was dropped; needed until
local HEAD = '<i8i8c8c8BI2' -- now_ms or 0, grace_ms, epoch for an empty shard, inbox, prefix, ops
local RUN = '<BBi8i8I2' -- kind, waits (of accepts: flags), lease_ms, retain_ms, ops
local LIST = '<I8I8i8' -- first, next, due_ms of the first
local ENTRY = '<i8i8I2' -- due_ms, changed_at_ms, records
local LISTS, LIST_MS = 12, 60000 -- of what is due in a minute, four, sixteen ... eight years
local DAY_MS, ABANDONED_KEEP_MS = 86400000, 86400000
local CLAIM, PUBLISH = 0, 1 -- kinds of runs, and as enum verb has them
local ACCEPT = 3 -- a kind, too

local now_ms, grace_ms, new_epoch, inbox, prefix_len, count = unpack(HEAD, ARGV[1])
if now_ms == 0 then
    local time = call('TIME')
    now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
end

local shard = KEYS[1]
local raws = call('HMGET', shard, _G.unpack(ARGV, 2, 2 + count))

local epoch, floor, until_ms = new_epoch, 0, 0
local meta_changed = not raws[1]
if raws[1] then
    if #raws[1] ~= 24 then return redis.error_reply('CORRUPT not the meta of a shard: ' .. shard) end
    epoch, floor, until_ms = unpack(META, raws[1])
end
local fence = now_ms * 1000 > floor and now_ms * 1000 or floor + 1

local fields, field_count = {}, 0 -- what is to be written at the end
local ends, due = {}, nil -- of lists, as they are to be; one of which something is due

local function needed_until(gone_at_ms)
    if gone_at_ms <= until_ms then return end
    until_ms = gone_at_ms + DAY_MS
    meta_changed = true
end

local function list_for(life_ms)
    local list, list_ms = 0, LIST_MS
    while list_ms < life_ms and list < LISTS - 1 do list, list_ms = list + 1, list_ms * 4 end
    return '\0' .. string.char(list)
end

-- Somebody will look at these frames in `life_ms`.
local function note(life_ms, records, lengths, frames)
    local name = list_for(life_ms)
    local known = ends[name] or call('HGET', shard, name)
    local first, next_one, due_ms = 0, 0, now_ms + life_ms + grace_ms
    if known then first, next_one, due_ms = unpack(LIST, known) end
    if due_ms <= now_ms then due = name end
    ends[name] = pack(LIST, first, next_one + 1, due_ms)
    fields[field_count + 1], fields[field_count + 2] = name, ends[name]
    fields[field_count + 3] = name .. pack('<I8', next_one)
    fields[field_count + 4] = pack(ENTRY, now_ms + life_ms + grace_ms, now_ms, records) .. lengths
        .. frames
    field_count = field_count + 4
end

local shortest_ms -- retention of what was published in a run

local function rules()
    local HEADER = '<BBI2i8I8i8i8i8i8c16B'
    local OP = '<BBc16i8i8I8B'
    local HEADER_BYTES, INBOX_BYTES, INBOXES_MAX = 69, 8, 1000
    local NEWS_BYTES_MAX = 16384
    local PLACEHOLDER_MS = 60000
    local ENTRIES_MAX, LOOK_COUNT = 4, 100 -- in one step

    local PENDING, DONE = 1, 2
    local CLAIMED, CACHED, IN_PROGRESS, ALREADY_DONE = 1, 2, 3, 5
    local MISMATCH, LOST, OK, ABSENT = 6, 7, 8, 9
    local CHANGED, TAKEN_OVER, FAILED = 16, 32, 255
    local FORCE = 1
    local EXPIRE, PING = 7, 10 -- as enum verb has them

    local pcall, char = redis.pcall, string.char

    local channel = sub(ARGV[1], 36, 35 + prefix_len) .. ':inbox:'

    local function raise_floor(fence)
        if fence <= floor then return end
        floor = fence
        call('HSET', shard, '', pack(META, epoch, floor, until_ms))
    end

    -- The record and the request of the op in hand. Filled anew for each: a table per op would cost
    -- more than everything else that is done here.
    local r = {
        key = '', raw = '', state = 0, token = '', fence = 0, claimed_at_ms = 0, lease_ms = 0,
        lease_until_ms = 0, retain_ms = 0, done_at_ms = 0, kept = 0, fingerprint = '', watchers = '',
    }
    local q = {
        alone = false, token = '', lease_ms = 0, retain_ms = 0, seen = 0, fingerprint = '', force = false,
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
        r.state, r.kept, inboxes, r.done_at_ms, r.fence, r.claimed_at_ms, r.lease_until_ms,
            r.retain_ms, r.lease_ms, r.token, fingerprint_len = unpack(HEADER, raw)
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
        return pack(HEADER, r.state, r.kept, #r.watchers / INBOX_BYTES, r.done_at_ms, r.fence,
            r.claimed_at_ms, r.lease_until_ms, r.retain_ms, r.lease_ms, r.token, #r.fingerprint)
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

    -- An op of no run: those of a run are noted together.
    local function note_alone(life_ms)
        if q.alone then note(life_ms, 1, pack('<I2', #r.key), r.key) end
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
        note_alone(q.lease_ms)
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
        note_alone(r.retain_ms)
        if not shortest_ms or r.retain_ms < shortest_ms then shortest_ms = r.retain_ms end
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

    local function version()
        if not is_live() then return 0 end
        return r.fence * 2 + (r.state == DONE and 1 or 0)
    end

    local function forget()
        if not is_live() then
            if r.state ~= 0 then return drop(ABSENT) end
            return ABSENT, '', ''
        end
        if q.seen ~= 0 and version() ~= q.seen then return lost() end
        local owned = r.state == PENDING and now_ms < r.lease_until_ms
        if owned and not q.force then return keep(IN_PROGRESS) end
        return drop(OK)
    end

    local function peek()
        if not is_live() then return ABSENT, '', '' end
        if r.state == DONE then return finished() end
        return keep(IN_PROGRESS)
    end

    -- Leaves the asking process's inbox unless there is something to tell already. A record that is
    -- not there is written as one that counts for nothing.
    local function watch()
        if version() ~= q.seen or is_told() then return peek() end
        local content = value()
        if #r.raw == 0 then
            r.claimed_at_ms = now_ms
            note_alone(PLACEHOLDER_MS)
        end
        r.watchers = r.watchers .. inbox
        r.raw = write(content) .. r.fingerprint .. r.watchers .. content
        return peek()
    end

    local function expire()
        if r.state == 0 or is_live() then return OK, '', '' end
        return drop(ABSENT)
    end

    -- Removes what is gone of an entry: how many that were, and an entry for the others. What has
    -- changed since is in another one.
    local function expire_entry(entry)
        local _, changed_at_ms, records, length_at = unpack(ENTRY, entry)
        local names, gone, lengths, alive = {}, {}, {}, {}
        local highest, earliest_ms = 0, nil
        local name_at = length_at + 2 * records
        for i = 1, records do
            local length = unpack('<I2', entry, length_at)
            names[i] = sub(entry, name_at, name_at + length - 1)
            length_at, name_at = length_at + 2, name_at + length
        end
        local found = call('HMGET', shard, _G.unpack(names))
        for i = 1, #names do
            local there = take(names[i], found[i])
            if there and (r.state == DONE and r.done_at_ms or r.claimed_at_ms) == changed_at_ms then
                local gone_ms = gone_at_ms() + grace_ms
                if now_ms >= gone_ms then
                    gone[#gone + 1] = names[i]
                    if r.fence > highest then highest = r.fence end
                    wake(r.watchers, '', '')
                else
                    lengths[#lengths + 1], alive[#alive + 1] = pack('<I2', #names[i]), names[i]
                    if not earliest_ms or gone_ms < earliest_ms then earliest_ms = gone_ms end
                end
            end
        end
        raise_floor(highest)
        if #gone > 0 then call('HDEL', shard, _G.unpack(gone)) end
        if #alive == 0 then return #gone end
        return #gone, earliest_ms, pack(ENTRY, earliest_ms, changed_at_ms, #alive)
            .. table.concat(lengths) .. table.concat(alive)
    end

    local function append(name, entry, due_ms)
        local known = call('HGET', shard, name)
        local first, next_one, first_due_ms = 0, 0, due_ms
        if known then first, next_one, first_due_ms = unpack(LIST, known) end
        call('HSET', shard, name, pack(LIST, first, next_one + 1, first_due_ms),
            name .. pack('<I8', next_one), entry)
    end

    -- Takes out up to `most` entries that are due: how many records and entries that were.
    local function expire_list(name, most)
        local ends = call('HGET', shard, name)
        if not ends then return 0, 0 end
        local first, next_one, due_ms = unpack(LIST, ends)
        local removed, taken = 0, 0
        while first < next_one do
            local entry_name = name .. pack('<I8', first)
            local entry = call('HGET', shard, entry_name)
            due_ms = entry and unpack(ENTRY, entry) or 0
            if due_ms > now_ms or taken == most then break end
            local some, rest_due_ms, rest = 0, nil, nil
            if entry then some, rest_due_ms, rest = expire_entry(entry) end
            local to = rest and list_for(rest_due_ms - now_ms)
            if to == name then
                call('HSET', shard, name .. pack('<I8', next_one), rest)
                next_one = next_one + 1
            elseif rest then
                append(to, rest, rest_due_ms)
            end
            call('HDEL', shard, entry_name)
            removed, taken, first = removed + some, taken + 1, first + 1
        end
        if first < next_one then
            call('HSET', shard, name, pack(LIST, first, next_one, due_ms))
        else
            call('HDEL', shard, name)
        end
        return removed, taken
    end

    -- How many were removed, and whether more may be due.
    local function expire_due()
        local removed, taken = 0, 0
        for list = 0, LISTS - 1 do
            local some, entries = expire_list('\0' .. char(list), ENTRIES_MAX - taken)
            removed, taken = removed + some, taken + entries
        end
        return pack('<BI4B', OK, removed, taken < ENTRIES_MAX and 0 or 1)
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

    local function decide(verb, key, raw)
        local _, failure = take(key, raw)
        if failure then return char(FAILED) .. failure end
        local status, head, answer = verbs[verb]()
        return char(status) .. head .. answer
    end

    local by_rules = { expire_list = expire_list }

    function by_rules.claim(key, raw, mine, waits)
        local fingerprint_len
        q.retain_ms, q.lease_ms, q.token, fingerprint_len = unpack('<i8i8c16B', mine)
        q.fingerprint = sub(mine, 34, 33 + fingerprint_len)
        q.alone, q.force, q.waits, q.value = false, false, waits, false
        return decide(CLAIM, key, raw)
    end

    function by_rules.publish(key, raw, token, content)
        q.alone, q.token, q.retain_ms, q.value = false, token, -1, content
        return decide(PUBLISH, key, raw)
    end

    -- A publish that says how long, if it does.
    function by_rules.accept(key, raw, token, content, retain_ms)
        q.alone, q.token, q.retain_ms, q.value = false, token, retain_ms, content
        return decide(PUBLISH, key, raw)
    end

    function by_rules.other(key, raw, op, content)
        local verb, flags, token, lease_ms, retain_ms, seen, fingerprint_len = unpack(OP, op)
        if byte(key) == 0 and verb == EXPIRE then return expire_due() end
        if byte(key) == 0 then return look(seen) end
        if verb == PING then return char(OK) end
        q.alone, q.token, q.lease_ms, q.retain_ms, q.seen = true, token, lease_ms, retain_ms, seen
        q.fingerprint = sub(op, 44, 43 + fingerprint_len)
        q.force, q.waits, q.value = flags % 2 == FORCE, false, content
        return decide(verb, key, raw)
    end

    return by_rules
end

local CLAIMED = '\17' -- and CHANGED
local answers = { now_ms, epoch, 0, fence }
local by_rules
local i, at = 1, 3 + count -- the next op, and the next argument

-- Those of a run that came out as `status`, or as the short way says it.
local function note_run(life_ms, first, last, lengths, all, status, short)
    if all then
        note(life_ms, last - first + 1, lengths, table.concat(ARGV, '', 2 + first, 2 + last))
        return
    end
    local some, frames = {}, {}
    for i = first, last do
        local said = type(answers[4 + i]) == 'string' and byte(answers[4 + i]) % 32
        if said == status or said == short then
            some[#some + 1], frames[#frames + 1] = pack('<I2', #ARGV[2 + i]), ARGV[2 + i]
        end
    end
    if #frames > 0 then note(life_ms, #frames, table.concat(some), table.concat(frames)) end
end

local function claims(last, lengths, waits, lease_ms, retain_ms)
    local new = '\1\0\0\0' .. pack('<i8I8i8i8', 0, fence, now_ms, now_ms + lease_ms)
    local first, all, granted = i, true, false
    for i = first, last do
        local raw, mine = raws[1 + i], ARGV[at]
        at = at + 1
        if not raw then
            fields[field_count + 1], fields[field_count + 2] = ARGV[2 + i], new .. mine
            field_count = field_count + 2
            answers[4 + i] = CLAIMED
            granted = true
        else
            by_rules, all = by_rules or rules(), false
            answers[4 + i] = by_rules.claim(ARGV[2 + i], raw, mine, waits > 0)
        end
    end
    local keep_ms = retain_ms > ABANDONED_KEEP_MS and retain_ms or ABANDONED_KEEP_MS
    if granted then needed_until(now_ms + lease_ms + keep_ms) end
    note_run(lease_ms, first, last, lengths, all, 17, 17)
end

-- The short way: pending, not kept, watched by nobody; by its owner, in time. Gives the record as it
-- was; nil: it is for the rules. `given_ms`: how long to keep it; nil: as granted.
local done = '\2\1\0\0' .. pack('<i8', now_ms)

local function publish_short(key, raw, token, content, given_ms)
    if not raw or #raw < 69 or find(raw, '\1\0\0\0', 1, true) ~= 1
        or find(raw, token, 53, true) ~= 53 then
        return nil
    end
    local lease_until_ms, retain_ms = unpack('<i8i8', raw, 29)
    local keep_ms = retain_ms > ABANDONED_KEEP_MS and retain_ms or ABANDONED_KEEP_MS
    if now_ms >= lease_until_ms + keep_ms or #raw ~= 69 + byte(raw, 69) then return nil end
    local rest
    if given_ms then
        rest, retain_ms = sub(raw, 13, 36) .. pack('<i8', given_ms) .. sub(raw, 45), given_ms
    else
        rest = sub(raw, 13)
    end
    fields[field_count + 1], fields[field_count + 2] = key, done .. rest .. content
    field_count = field_count + 2
    if now_ms + retain_ms > until_ms then needed_until(now_ms + retain_ms) end
    if not shortest_ms or retain_ms < shortest_ms then shortest_ms = retain_ms end
    return raw
end

local function publishes(last, lengths)
    local first, all = i, true
    shortest_ms = nil
    for i = first, last do
        local key, raw, token, content = ARGV[2 + i], raws[1 + i], ARGV[at], ARGV[at + 1]
        local answer = publish_short(key, raw, token, content)
        at = at + 2
        if not answer then
            by_rules, all = by_rules or rules(), false
            answer = by_rules.publish(key, raw, token, content)
        end
        answers[4 + i] = answer
    end
    if shortest_ms then note_run(shortest_ms, first, last, lengths, all, 24, 1) end
end

local VALUE = 2 -- a flag, as in OP

local function others(last)
    by_rules = by_rules or rules()
    for i = i, last do
        local op, content = ARGV[at], nil
        at = at + 1
        if byte(op, 2) >= VALUE then
            content = ARGV[at]
            at = at + 1
        end
        answers[4 + i] = by_rules.other(ARGV[2 + i], raws[1 + i], op, content)
    end
end

-- Publishes claims and puts entries into the buffer of one env, each with its claim or not at all.
-- Whatever can fail comes before the first write. Made only for a step that accepts; what is stored,
-- and how it is found, is in redis_chunk.lua.
local accepts
if KEYS[2] then
    local buffer, index = KEYS[2], KEYS[3]
    local META, META_BYTES = '<c8I8I8', 24
    local UNCLAIMED, VALUE, FRESH, KEYED = 1, 2, 4, 8
    local CHUNK, PART = '<i8I2B', '<I2I2Bi8i8c16'
    local RANGE = '<BI2i8I4'
    local RECORD_BYTES, RECORD_DONE = 69, 2
    local QUEUED, WRITTEN = 1, 3
    local IN_PROGRESS, LOST, OK, STORED, FAILED = 3, 7, 8, 64, 255
    local ACCEPTED, NOBODY = string.char(OK + STORED), string.rep('\0', 16)
    local char, concat = string.char, table.concat

    local buffer_epoch, seq, held, known = new_epoch, 0, 0, nil
    local chunks -- made when something is there

    -- Is there a record that counts? One that is none is for whoever goes by the rules.
    local function is_claimed(raw)
        if not raw or byte(raw) == 0 then return false end
        if #raw < RECORD_BYTES then return true end
        local done_at_ms, _, _, lease_until_ms, retain_ms = unpack('<i8I8i8i8i8', raw, 5)
        if byte(raw) == RECORD_DONE then return now_ms < done_at_ms + retain_ms end
        local keep_ms = retain_ms > ABANDONED_KEEP_MS and retain_ms or ABANDONED_KEEP_MS
        return now_ms < lease_until_ms + keep_ms
    end

    -- These one behind the other, and where each ends in front of them.
    local function joined(list)
        local ends, at = {}, 0
        for i = 1, #list do
            at = at + #list[i]
            ends[i] = pack('<I4', at)
        end
        return concat(ends) .. concat(list)
    end

    -- What was asked of one env: '', names, keys if flagged; all that is to be stored of these, if all
    -- of it is; tokens and values if they are claimed. `bounds`: the highest id, the lowest.
    accepts = function(last, lengths, flags, retain_ms, bounds)
        local first, n, keyed = i, last - i + 1, flags >= KEYED
        local fresh, claimed = flags % KEYED >= FRESH, flags % 2 ~= UNCLAIMED
        local names = at + 1
        local keys = keyed and names + n
        local stored = names + (keyed and 2 * n or n)
        local tokens = stored + (keyed and 3 or 2)
        local values, bodies = tokens + n, ARGV[tokens - 1]
        local found = call('HMGET', buffer, _G.unpack(ARGV, at, stored - 1))
        if known == nil then
            call('ZCARD', index) -- whatever else it is, it says so now
            known = found[1]
            if known and #known ~= META_BYTES then
                return redis.error_reply('CORRUPT not the meta of a buffer: ' .. buffer)
            end
            if known then buffer_epoch, seq, held = unpack(META, known) end
        end
        at = claimed and values + n or tokens

        -- Has nobody been here?
        local function is_new()
            local seen = {}
            for j = 2, stored - names + 1 do
                if found[j] then return false end
            end
            for j = names, stored - 1 do
                local field = ARGV[j]
                if seen[field] then return false end
                seen[field] = true
            end
            if not fresh then return true end
            for i = first, last do
                if raws[1 + i] then return false end
            end
            return true
        end

        local taken, staged, late = {}, {}, false -- those that are stored, and what leads to them

        local function run_of(j)
            local from = j > 0 and unpack('<I4', bodies, 4 * j - 3) or 0
            return sub(bodies, 4 * n + from + 1, 4 * n + unpack('<I4', bodies, 4 * j + 1))
        end

        local function told(j)
            return { pack(RANGE, QUEUED, 1, now_ms, 0), ARGV[names + j], joined({ run_of(j) }) }
        end

        -- Nothing of what was written, and is not kept any more, stays.
        local function take_out(c, entry, p)
            chunks.carve(c, p, entry, entry)
            chunks.take_out(c, p)
            late = true
        end

        -- Who has the key: the answer that tells it; and one that has it still, though it is written.
        local function key_holder(key, j)
            if staged[key] then return told(staged[staged[key]]) end
            local holder = found[2 + n + j]
            if not holder or staged[holder] then return nil end -- it was another with that name
            local c, entry, p = chunks.find(holder)
            if not c then return nil end
            if p.state ~= WRITTEN then
                if holder == ARGV[names + j] then return nil, c, entry, p end
                return chunks.tell({}, c, p, entry, entry)
            end
            if chunks.lives(p) then return nil, c, entry, p end
            take_out(c, entry, p)
            return nil
        end

        -- Is it there? And if what is there came with other bytes: the answer that tells it.
        local function is_there(name, j)
            local first, run = staged[name], run_of(j)
            if first then return true, run_of(first) ~= run and told(first) end
            local c, entry, p
            if found[2 + j] then c, entry, p = chunks.find(name, found[2 + j]) end
            if not c then return false end
            if not chunks.lives(p) then
                take_out(c, entry, p)
                return false
            end
            local other = chunks.tell({}, c, p, entry, entry)
            return true, sub(other[3], 5) ~= run and other
        end

        local function publish(i, j)
            local content = flags % FRESH >= VALUE and ARGV[values + j] or nil
            local raw, frame, token = raws[1 + i], ARGV[2 + i], ARGV[tokens + j]
            local answer = content
                and publish_short(frame, raw, token, content, retain_ms >= 0 and retain_ms)
            if answer then return OK, answer, true end
            by_rules = by_rules or rules()
            answer = by_rules.accept(frame, raw, token, content, retain_ms)
            return byte(answer), sub(answer, 2), false
        end

        -- A claim that is somebody else's does not matter to what is there already.
        local function accept(i, j)
            local name, key = ARGV[names + j], keyed and ARGV[keys + j]
            local cached, holder, entry, p
            if key then cached, holder, entry, p = key_holder(key, j) end
            local has_it = holder and chunks.name_of(holder, entry) == name
            if cached and staged[key] ~= name then return cached end
            local there, other = is_there(name, j)
            local status, answer, short = OK, '', false
            if other and not fresh then return other end
            if fresh then
                local mine = cached or has_it and p.state ~= WRITTEN
                if there and mine then return char(OK) end
                if there or holder or is_claimed(raws[1 + i]) then return char(IN_PROGRESS) end
            elseif claimed then
                status, answer, short = publish(i, j)
            end
            if status == FAILED or status == LOST and not there then return char(status) .. answer end
            if status == LOST then status = OK end
            if not there then
                if holder then
                    chunks.let_go(holder, entry)
                    late = true
                end
                taken[#taken + 1], staged[name] = j, j
                if key then staged[key] = name end
                if not short then status = status + STORED end
            end
            return short and answer or char(status) .. answer
        end

        -- What is stored of all of them, of those that were taken.
        local function content()
            if #taken == n then return ARGV[stored], keyed and ARGV[stored + 1], bodies end
            local some, their_keys, runs = {}, {}, {}
            for t = 1, #taken do
                some[t], runs[t] = ARGV[names + taken[t]], run_of(taken[t])
                if keyed then their_keys[t] = ARGV[keys + taken[t]] end
            end
            return concat(some), keyed and joined(their_keys), joined(runs)
        end

        local function store()
            local sets, count = {}, 0
            local env = sub(ARGV[names], 2, 2 + byte(ARGV[names], 2))
            seq, held = seq + 1, held + #taken
            local chunk = pack('>I8', seq)
            for t = 1, #taken do
                local name = ARGV[names + taken[t]]
                sets[count + 1], sets[count + 2] = name, chunk
                count = count + 2
                if keyed then
                    sets[count + 1], sets[count + 2] = ARGV[keys + taken[t]], name
                    count = count + 2
                end
            end
            local all_names, all_keys, all_runs = content()
            sets[count + 1], sets[count + 2] = 'n' .. chunk, all_names
            sets[count + 3], sets[count + 4] = 'b' .. chunk, all_runs
            sets[count + 5] = 's' .. chunk
            sets[count + 6] = pack(CHUNK, now_ms, #taken, 0) .. bounds .. env
                .. pack(PART, 0, #taken - 1, QUEUED, 0, 0, NOBODY)
            sets[count + 7], sets[count + 8] = '', pack(META, buffer_epoch, seq, held)
            if keyed then sets[count + 9], sets[count + 10] = 'y' .. chunk, all_keys end
            known = true
            call('HSET', buffer, _G.unpack(sets))
            call('ZADD', index, '0', 'q' .. env .. '\1' .. chunk .. '\0\0', '0', 'a' .. chunk,
                '0', listed_as(env, bounds, chunk))
        end

        shortest_ms = nil
        if not claimed and is_new() then
            for j = 0, n - 1 do
                taken[1 + j] = j
                answers[4 + first + j] = ACCEPTED
            end
        else
            chunks = chunks or chunk_rules(buffer, index, now_ms)
            for j = 0, n - 1 do answers[4 + first + j] = accept(first + j, j) end
        end
        if shortest_ms then note_run(shortest_ms, first, last, lengths, false, 24, 1) end
        if late then chunks.write() end
        if #taken > 0 then store() end
        answers[5 + count] = known and buffer_epoch or ''
        return nil
    end
end

while i <= count do
    local kind, waits, lease_ms, retain_ms, run, lengths_at = unpack(RUN, ARGV[at])
    local lengths, last = sub(ARGV[at], lengths_at), i + run - 1
    at = at + 1
    if kind == CLAIM then
        claims(last, lengths, waits, lease_ms, retain_ms)
    elseif kind == PUBLISH then
        publishes(last, lengths)
    elseif kind == ACCEPT then
        local failure = accepts(last, sub(lengths, 1, 2 * run), waits, retain_ms,
            sub(lengths, 2 * run + 1))
        if failure then return failure end
    else
        others(last)
    end
    i = last + 1
end

needed_until(now_ms)
if meta_changed then
    fields[field_count + 1], fields[field_count + 2] = '', pack(META, epoch, floor, until_ms)
    field_count = field_count + 2
end
if field_count > 0 then call('HSET', shard, _G.unpack(fields)) end
if meta_changed then call('PEXPIRE', shard, until_ms - now_ms) end
if due then
    by_rules = by_rules or rules()
    by_rules.expire_list(due, 2) -- more than was added
end
answers[3] = floor
return answers
