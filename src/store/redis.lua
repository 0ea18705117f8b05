-- redis.lua - core/rules.c for a shard of records, in one atomic step.
--
-- KEYS  the shard; if something is to be accepted, the buffer of the shard and its index, too
-- ARGV  HEAD and a prefix; the fields to read: '' and a frame per op, none twice; then runs of ops
--       that are alike, each a RUN, the lengths of its frames, and per op
--       claim    what of the record is the caller's: retain_ms, lease_ms, token, fingerprint
--       publish  a token, a value; the retention is as granted
--       other    an OP, fingerprint, and a value if flagged
--       accept   an ASKED, id and key of an entry, a value ('': the id), the run; they have a step of
--                their own, and the env of all of a run is behind the lengths
-- gives now_ms, epoch, fence floor, fence of a new claim, then per op: status, header of the record as
--       it is now, value; for short: of a claim of a new key the status alone, of a publish of what
--       was just pending that record, which begins like no status that a publish can have; of an
--       accept whose key leads to another entry, that one. After those to accepts, the epoch of the
--       buffer.
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
local RUN = '<BBi8i8I2' -- kind, waits, lease_ms, retain_ms, ops
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
        local said = byte(answers[4 + i]) % 32
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
-- and how it is found, is in redis_buffer.lua.
local accepts
if KEYS[2] then
    local buffer, index = KEYS[2], KEYS[3]
    local META = '<c8I8'
    local ASKED, UNCLAIMED, VALUE, FRESH = '<c16i8B', 1, 2, 4 -- token, retain_ms, flags
    local HEADER, HEADER_BYTES, RUN_INLINE = '<BI8I4i8>I8<i8i8c16I2', 63, 4096
    local ENTRY = '<BI8I4i8BI4'
    local QUEUED, LEASED, WRITTEN, LAPSED = 1, 2, 3, 4
    local CACHED, IN_PROGRESS, LOST, OK, STORED, FAILED = 2, 3, 7, 8, 64, 255
    local NEW, NOBODY = pack('<BI8I4i8', QUEUED, 0, 0, now_ms), string.rep('\0', 8 + 8 + 16)
    local char = string.char

    local function lives(header)
        if not header or #header < HEADER_BYTES then return false end
        local state, _, _, _, _, until_ms = unpack(HEADER, header)
        return state ~= WRITTEN or now_ms < until_ms
    end

    -- Is there a record that counts? One that is none is for whoever goes by the rules.
    local function is_claimed(raw)
        if not raw or byte(raw) == 0 then return false end
        if #raw < 69 then return true end
        local done_at_ms, _, _, lease_until_ms, retain_ms = unpack('<i8I8i8i8i8', raw, 5)
        if byte(raw) == 2 then return now_ms < done_at_ms + retain_ms end
        local keep_ms = retain_ms > ABANDONED_KEEP_MS and retain_ms or ABANDONED_KEEP_MS
        return now_ms < lease_until_ms + keep_ms
    end

    -- The answer that tells who has the key; nil: nobody.
    local function told(env, id, header, run, changes)
        if not lives(header) then return nil end
        local state, rev, attempts, accepted_at_ms, _, until_ms, lease_ms, _, key_len =
            unpack(HEADER, header)
        local left_ms = until_ms - now_ms
        if state == WRITTEN then return nil end
        if state == LAPSED or state == LEASED and (left_ms <= 0 or left_ms > lease_ms) then
            state = QUEUED
        end
        run = run or sub(header, HEADER_BYTES + key_len + 1)
        return char(CACHED) .. pack(ENTRY, state, rev, attempts, accepted_at_ms, #env, #run)
            .. env .. id .. run .. (changes or '')
    end

    local buffer_epoch, seq, known = new_epoch, 0, nil

    accepts = function(last, lengths, env)
        local prefix = char(#env) .. env
        local h, k, r, x = 'h' .. prefix, 'k' .. prefix, 'r' .. prefix, 'i' .. prefix
        local q = 'q' .. prefix .. '\1'
        local asked, n = { '' }, 1
        for at = at, at + 5 * (last - i), 5 do
            asked[n + 1] = h .. ARGV[at + 1]
            n = n + 1
            if ARGV[at + 2] ~= '' then
                asked[n + 1] = k .. ARGV[at + 2]
                n = n + 1
            end
        end
        local found = call('HMGET', buffer, _G.unpack(asked))
        if known == nil then
            call('ZCARD', index) -- whatever else it is, it says so now
            known = found[1]
            if known then buffer_epoch, seq = unpack(META, known) end
        end

        local sets, set_count, members, member_count = {}, 0, {}, 0
        local staged = {} -- what was found, and what this step will write
        for i = 1, n do staged[asked[i]] = found[i] end

        local function header_of(id)
            local known = staged[h .. id]
            if known == nil then known = call('HGET', buffer, h .. id) end
            return known
        end

        local function is_written(id)
            return byte(header_of(id)) == WRITTEN
        end

        local function bound_to(id)
            local header, run = staged[h .. id], staged[r .. id]
            if header then return told(env, id, header, run, nil) end
            local found = call('HMGET', buffer, h .. id, r .. id, 'c' .. prefix .. id)
            return told(env, id, found[1], found[2], found[3])
        end

        local function store(id, key, key_field, run)
            seq = seq + 1
            local place, header_field = pack('>I8', seq), h .. id
            if staged[header_field] then -- of one that was written, and is not kept any more
                call('HDEL', buffer, r .. id, 'c' .. prefix .. id)
            end
            local header = NEW .. place .. NOBODY .. char(#key % 256, (#key - #key % 256) / 256) .. key
            if #run <= RUN_INLINE then
                header = header .. run
            else
                sets[set_count + 1], sets[set_count + 2] = r .. id, run
                staged[r .. id] = run
                set_count = set_count + 2
            end
            sets[set_count + 1], sets[set_count + 2] = header_field, header
            staged[header_field] = header
            set_count = set_count + 2
            if key ~= '' then
                sets[set_count + 1], sets[set_count + 2] = key_field, id
                staged[key_field] = id
                set_count = set_count + 2
            end
            members[member_count + 1], members[member_count + 2] = 0, x .. id
            members[member_count + 3], members[member_count + 4] = 0, q .. place .. id
            member_count = member_count + 4
        end

        -- A claim that is somebody else's does not matter to what is there already.
        local function accept(i, asks, id, key, value, run)
            local token, retain_ms, flags = unpack(ASKED, asks)
            local key_field = key ~= '' and k .. key
            local bound = key_field and staged[key_field]
            local cached = bound and bound ~= id and bound_to(bound)
            if cached then return cached end
            local there, status, answer = lives(staged[h .. id]), OK, ''
            if flags >= FRESH and not (there and bound == id and not is_written(id)) then
                local kept = bound and lives(header_of(bound))
                if there or kept or is_claimed(raws[1 + i]) then return char(IN_PROGRESS) end
            end
            if flags % 2 ~= UNCLAIMED then
                local content = flags >= VALUE and (value == '' and id or value) or nil
                local raw, frame = raws[1 + i], ARGV[2 + i]
                answer = content
                    and publish_short(frame, raw, token, content, retain_ms >= 0 and retain_ms)
                if answer then
                    if not there then store(id, key, key_field, run) end
                    return answer
                end
                by_rules = by_rules or rules()
                answer = by_rules.accept(frame, raw, token, content, retain_ms)
                status, answer = byte(answer), sub(answer, 2)
            end
            if status == FAILED or status == LOST and not there then return char(status) .. answer end
            if status == LOST then status = OK end
            if there then return char(status) .. answer end
            store(id, key, key_field, run)
            return char(status + STORED) .. answer
        end

        shortest_ms = nil
        local first = i
        for i = first, last do
            answers[4 + i] =
                accept(i, ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4])
            at = at + 5
        end
        if shortest_ms then note_run(shortest_ms, first, last, lengths, false, 24, 1) end
        if set_count > 0 then
            known = true
            sets[set_count + 1], sets[set_count + 2] = '', pack(META, buffer_epoch, seq)
            call('HSET', buffer, _G.unpack(sets))
            call('ZADD', index, _G.unpack(members))
        end
        answers[5 + count] = known and buffer_epoch or ''
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
        accepts(last, sub(lengths, 1, 2 * run), sub(lengths, 2 * run + 1))
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
