-- redis_buffer.lua - entries of the buffer, in one atomic step. What puts them there is in redis.lua,
-- since it decides on a claim, too; what they are kept in is in redis_chunk.lua.
--
-- KEYS  the buffer of a shard, its index
-- ARGV  now_ms or 0; then per op an OP and two arguments
--         get     the name of the entry, or the field of a key
--         append  the name, a change
--         lease   the name: that one; '': whose turn it is, and weights of envs that are not 1, each behind
--                 its env and the length of that
--         settle  '', SETTLES
--         list    FROM, an id to begin behind
--         stats
-- gives now_ms, epoch ('': there is no buffer), then per op: outcome, three numbers, RANGEs of entries
--       with what belongs to them; or the outcome alone
--
-- Two keys, and both are named: a slot of a cluster that moves is never seen half here and half there
-- (Redis says TRYAGAIN). Nothing in here expires by itself; what was written is taken out, when its
-- time has come, by whoever leases or settles, a few at a time.

local call, pack, unpack, byte, find, sub =
    redis.call, struct.pack, struct.unpack, string.byte, string.find, string.sub

local OP = '<BBI8i8c16I4I4' -- kind, flags, rev, lease_ms, token, limit, env_limit; settle: the pauses of
    -- what goes back and of what has failed instead of rev and lease_ms
local SETTLES = '<I4I4' -- bytes of the names of those that are written, and back; behind them, of those
    -- that have failed, too: one name behind the other, those of a chunk in their order
local META, META_BYTES = '<c8I8I8', 24
    -- epoch, lost with the entries; the last chunk; entries that are not written

local QUEUED, LEASED, WRITTEN, LAPSED = 1, 2, 3, 4
local IN_PROGRESS, OK, ABSENT, CONFLICT = 3, 8, 9, 11
local GET, BY_KEY, FREES_KEY = 1, 1, 1
local ID_BYTES, PLACE_BYTES = 30, 10
local KEEP_MS = 30000
-- What a step costs is what it touches: a server that is asked for more than it can do within a deadline
-- is taken for one that hangs.
local PARTS_MAX, SPARE, TIDY = 256, 128, 16 -- of a lease; more of those that lapsed; entries swept by each
local PARTS, CHUNKS, LEASES, LEASES_MAX = 16, 64, 1000, 10000 -- looked at together, and at most
local ANSWER_BYTES_MAX = 8 * 1024 * 1024

local buffer, index = KEYS[1], KEYS[2]
local now_ms = unpack('<i8', ARGV[1])
if now_ms == 0 then
    local time = call('TIME')
    now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
end

local keys = {} -- by field: who has it
local meta

-- Those who look for a key are many, and most find nothing: for them alone, nothing else of this is
-- made.
do
    local fields, answers, alone, miss = { '' }, { now_ms, '' }, true, true
    for at = 2, #ARGV, 3 do
        local kind, flags = byte(ARGV[at], 1, 2)
        if kind == GET and flags == BY_KEY then
            fields[#fields + 1] = ARGV[at + 1]
            answers[#answers + 1] = ABSENT
        else
            alone = false
        end
    end
    local found = call('HMGET', buffer, _G.unpack(fields))
    meta = found[1]
    for i = 2, #fields do
        keys[fields[i]] = found[i]
        miss = miss and not found[i]
    end
    if meta and #meta ~= META_BYTES then
        return redis.error_reply('CORRUPT not the meta of a buffer: ' .. buffer)
    end
    if meta then answers[2] = unpack(META, meta) end
    if alone and miss then return answers end
end

local k = chunk_rules(buffer, index, now_ms)
local epoch, seq, held = '', 0, 0
if meta then epoch, seq, held = unpack(META, meta) end

local function be(n)
    return pack('>I8', n)
end

local function range(from, to, most)
    k.write()
    return call('ZRANGEBYLEX', index, from, to, 'LIMIT', 0, most)
end

local function last_of(from, to, most)
    k.write()
    return call('ZREVRANGEBYLEX', index, to, from, 'LIMIT', 0, most)
end

-- ---- one entry ----

local function get(q)
    local name = q.a
    if q.flags == BY_KEY then name = keys[name] end
    local c, entry, p
    if name then c, entry, p = k.find(name) end
    if not c or not k.lives(p) then return ABSENT end
    if q.flags == BY_KEY and p.state == WRITTEN then return ABSENT end
    return k.tell({ OK, 0, 0, 0 }, c, p, entry, entry)
end

-- A lease that has lapsed ends here: whoever had it has not seen the change, and must not settle.
local function append(q)
    local c, entry, p = k.find(q.a)
    if not c or p.state == WRITTEN then return ABSENT end
    if k.is_leased(p) then return { IN_PROGRESS, 0, 0, 0 } end
    local rev, attempts, let_go, changes = k.mark(c, entry)
    if rev ~= q.rev then return { CONFLICT, 0, 0, 0 } end
    if p.state ~= QUEUED then
        k.carve(c, p, entry, entry)
        k.queue(c, p)
    end
    local key = q.flags == FREES_KEY and let_go == 0 and k.key_of(c, entry)
    if key then
        k.drop(key)
        keys[key] = false
        let_go = 1
    end
    k.set_mark(c, entry, rev + 1, attempts, let_go, changes .. q.b)
    return { OK, 0, 0, 0 }
end

-- ---- what drainers do ----

-- What was leased and has lapsed is queued again, in front. Its token still settles it. Gives whether
-- all of them had.
local function requeue(members)
    for _, member in ipairs(members) do
        local c, p = k.part_at(sub(member, 10))
        if not c or k.member_of(c, p) ~= member then
            k.rem(member)
        elseif k.rests(p) then
            return false
        else
            k.become(c, p, LAPSED, p.token, 0)
        end
    end
    return #members > 0
end

-- At one end of them are those that have lapsed, at the other those of a clock that went back.
local function requeue_lapsed(most)
    requeue(range('[l', '(l' .. be(now_ms + 1), most))
    if requeue(last_of('[l', '(m', 1)) then requeue(last_of('[l', '(m', most)) end
end

-- Leases for one op: what it has so far, and of which envs.
local function leases(q)
    local got, left, bytes, of_env, weights = { OK, 0, 0, 0 }, q.limit, 0, {}, {}
    local parts = PARTS_MAX
    local cap = q.env_limit > 0 and q.env_limit or q.limit

    local function lease(c, p, first, last)
        k.carve(c, p, first, last)
        k.become(c, p, LEASED, q.token, q.lease_ms)
        k.tell(got, c, p, first, last)
        left, bytes, parts = left - (last - first + 1), bytes + #got[#got], parts - 1
        if bytes > ANSWER_BYTES_MAX or parts == 0 then left = 0 end
    end

    -- That one, whatever its turn.
    local function lease_one(name)
        local c, entry, p = k.find(name)
        if not c or p.state == WRITTEN or k.is_leased(p) then return end
        lease(c, p, entry, entry)
    end

    -- Up to so many of what an env has in its queue: how many that were, and whether it has more.
    local function some_of(env, most)
        local taken = 0
        while true do
            if taken == most or left == 0 then return taken, left > 0 end
            local members = range('[q' .. env, '(q' .. env .. '\255', PARTS)
            for _, member in ipairs(members) do
                if taken == most or left == 0 then break end
                local c, p = k.part_at(sub(member, -PLACE_BYTES))
                if not c or k.member_of(c, p) ~= member then
                    k.rem(member)
                else
                    local last = math.min(p.last, p.first + math.min(most - taken, left) - 1)
                    taken = taken + last - p.first + 1
                    lease(c, p, p.first, last)
                end
            end
            if #members < PARTS and taken < most then return taken, false end
        end
    end

    -- Envs that wait, as many as can have something, those first that come after whose turn was last.
    -- Where they are light, several are found by one look.
    local function waiting(turn)
        local envs, after, to, wrapped = {}, '[q' .. turn .. '\255', '(r', false
        local most = math.min(left, parts)
        while #envs < most do
            local members = range(after, to, PARTS)
            for _, member in ipairs(members) do
                local env = sub(member, 2, 2 + byte(member, 2))
                if env ~= envs[#envs] and #envs < most then envs[#envs + 1] = env end
            end
            if #members == PARTS then
                after = '[q' .. envs[#envs] .. '\255'
            elseif wrapped then
                break
            else
                after, to, wrapped = '[q', '(q' .. turn .. '\255', true
            end
        end
        return envs
    end

    local function read_weights(text)
        local at = 1
        while at <= #text do
            local to = at + byte(text, at)
            weights[sub(text, at, to)] = byte(text, to + 1)
            at = to + 2
        end
    end

    local function share_of(envs)
        local all = 0
        for _, env in ipairs(envs) do all = all + (weights[env] or 1) end
        return math.max(1, math.floor(left / all))
    end

    -- All envs get the same, by weight, and what some do not need is for the others. Gives whose turn
    -- was last: who gets what others do not need has had it before.
    local function queued(turn)
        local envs, first = waiting(turn), true
        while left > 0 and #envs > 0 do
            local share, more = share_of(envs), {}
            for _, env in ipairs(envs) do
                local most = math.min(share * (weights[env] or 1), left, cap - (of_env[env] or 0))
                if most > 0 then
                    local taken, goes_on = some_of(env, most)
                    of_env[env] = (of_env[env] or 0) + taken
                    if first and taken > 0 then turn = env end
                    if goes_on then more[#more + 1] = env end
                end
            end
            envs, first = more, false
        end
        return turn
    end

    local function all()
        local before = call('HGET', buffer, 't') or ''
        read_weights(q.b)
        requeue_lapsed(math.min(left, parts) + SPARE)
        local turn = queued(before)
        if turn ~= before then k.set('t', turn) end
        if range('[l', '(r', 1)[1] then got[2] = 1 end -- leased or queued: it is worth asking again
    end

    if q.a == '' then all() else lease_one(q.a) end
    return got
end

local function written(c, p, q)
    k.become(c, p, WRITTEN, q.token, KEEP_MS)
end

local function queue(c, p, pause_ms)
    if pause_ms > 0 then k.pause(c, p, pause_ms) else k.queue(c, p) end
end

local function back(c, p, q)
    queue(c, p, q.rev)
end

local function failed(c, p, q)
    for entry = p.first, p.last do
        local rev, attempts, let_go, changes = k.mark(c, entry)
        k.set_mark(c, entry, rev, attempts + 1, let_go, changes)
    end
    queue(c, p, q.lease_ms)
end

-- How many of these names, from `at` on, are those of the part, from `entry` on.
local function in_common(c, p, entry, names, at)
    local stride, most, here = c.stride, p.last - entry + 1, k.names(c)
    if most < c.count then here = sub(here, entry * stride + 1, (entry + most) * stride) end
    if find(names, here, at, true) == at then return most end
    local n = 1
    while n < most and find(names, k.name_of(c, entry + n), at + n * stride, true) == at + n * stride do
        n = n + 1
    end
    return n
end

-- Those whose names are in there, from `at` on and before `to`.
local function settle_some(q, at, to, become)
    local names, settled = q.b, 0
    while at < to do
        local stride, n = 2 + byte(names, at + 1) + ID_BYTES, 1
        local c, entry, p = k.find(sub(names, at, at + stride - 1))
        if c and k.was_leased(p) and p.token == q.token then
            n = math.min(in_common(c, p, entry, names, at), (to - at) / stride)
            k.carve(c, p, entry, entry + n - 1)
            become(c, p, q)
            settled = settled + n
        end
        at = at + n * stride
    end
    return settled
end

local function settle(q)
    local written_bytes, back_bytes, from = unpack(SETTLES, q.b)
    local back_from = from + written_bytes
    local failed_from = back_from + back_bytes
    local settled = settle_some(q, from, back_from, written)
        + settle_some(q, back_from, failed_from, back)
        + settle_some(q, failed_from, #q.b + 1, failed)
    return { OK, settled, 0, 0 }
end

local function tidy(most)
    while most > 0 do
        local members = range('[w', '(w' .. be(now_ms + 1), PARTS)
        for _, member in ipairs(members) do
            if most <= 0 then break end
            local c, p = k.part_at(sub(member, 10))
            if not c or k.member_of(c, p) ~= member then
                k.rem(member)
            else
                most = most - (p.last - p.first + 1)
                k.take_out(c, p)
            end
        end
        if #members < PARTS then break end
    end
    k.write()
end

-- ---- all of them ----

-- Keeps the newest, one more than `most`, in order. As a rule it comes behind those that are there.
local function keep(rows, row, most)
    local at = #rows + 1
    while at > 1 and rows[at - 1].id < row.id do at = at - 1 end
    if at > most + 1 then return end
    table.insert(rows, at, row)
    rows[most + 2] = nil
end

-- Those of a chunk that are not written, with ids that are lower than one.
local function collect(rows, c, below, most)
    for i = #c.parts, 1, -1 do
        local p = c.parts[i]
        for entry = p.last, p.state == WRITTEN and p.last + 1 or p.first, -1 do
            local id = sub(k.names(c), c.stride * (entry + 1) - ID_BYTES + 1, c.stride * (entry + 1))
            if below == '' or id < below then
                keep(rows, { id = id, c = c, p = p, entry = entry }, most)
            end
        end
    end
end

-- What the index has below `from`, from the highest on: with each call one, or nil.
local function downwards(prefix, from)
    local members, at, after = {}, 0, '(' .. prefix .. (from ~= '' and from or '\255')
    return function()
        at = at + 1
        if at > #members and after then
            members, at = last_of('[' .. prefix, after, CHUNKS), 1
            after = #members == CHUNKS and '(' .. members[CHUNKS]
        end
        return members[at]
    end
end

-- The newest, one more than `most` if there are. Chunks come by the highest id that they may have;
-- those that are behind one have nothing above it. Those of one entry are exactly where that is; of
-- the others, some that begin above `below`, but not above `from`, may have lower ones, too.
local function newest(env, from, below, most)
    local rows, id_at = {}, #env + 3
    local next_single, next_many = downwards('i' .. env .. '\0', below), downwards('i' .. env .. '\1', from)
    local single, many = next_single(), next_many()
    while single or many do
        local takes_many = not single or many and sub(many, id_at) > sub(single, id_at)
        local member = takes_many and many or single
        local last = rows[most + 1]
        if last and sub(member, id_at, id_at + ID_BYTES - 1) < last.id then break end
        local lowest = takes_many and sub(member, id_at + ID_BYTES, id_at + 2 * ID_BYTES - 1)
        local c = (not lowest or below == '' or lowest < below) and k.chunk(sub(member, -8))
        if c then collect(rows, c, below, most) end
        if takes_many then many = next_many() else single = next_single() end
    end
    return rows
end

local function list(q)
    local got, bytes = { OK, 0, 0, 0 }, 0
    local env_bytes = byte(q.a)
    local rows = newest(sub(q.a, 1, 1 + env_bytes), sub(q.a, 2 + env_bytes), q.b, q.limit)
    for i = 1, #rows do
        if i > q.limit or bytes > ANSWER_BYTES_MAX then
            got[2] = 1
            break
        end
        local row = rows[i]
        k.tell(got, row.c, row.p, row.entry, row.entry)
        bytes = bytes + #got[#got]
    end
    return got
end

-- By what the index says of each part: its last two bytes. Should there be very many, the rest counts
-- as queued.
local function leased_now()
    local leased, after = 0, '[l' .. be(now_ms + 1)
    for _ = 1, LEASES_MAX, LEASES do
        local members = range(after, '(m', LEASES)
        for _, member in ipairs(members) do
            local high, low = byte(member, -2, -1)
            leased = leased + high * 256 + low
        end
        if #members < LEASES then break end
        after = '(' .. members[#members]
    end
    return leased
end

local function stats()
    local leased, first = leased_now(), range('[a', '(b', 1)[1]
    local c = first and k.chunk(sub(first, 2))
    return { OK, held + k.held - leased, leased, c and now_ms - c.accepted_at_ms or 0 }
end

local kinds = { get, append, leases, settle, list, stats } -- as enum verb has them, from ACCEPT on
local LEASE, SETTLE = 3, 4

local answers = { now_ms, epoch }
local q = { flags = 0, rev = 0, lease_ms = 0, token = '', limit = 0, env_limit = 0, a = '', b = '' }
local untidy = 0

call('ZCARD', index) -- whatever else it is, it says so before anything is written
for at = 2, #ARGV, 3 do
    local kind
    kind, q.flags, q.rev, q.lease_ms, q.token, q.limit, q.env_limit = unpack(OP, ARGV[at])
    q.a, q.b = ARGV[at + 1], ARGV[at + 2]
    local answer = kinds[kind](q)
    k.write()
    if kind == SETTLE then untidy = untidy + 2 * answer[2] end
    if kind == LEASE or kind == SETTLE then untidy = untidy + TIDY end
    answers[#answers + 1] = answer
end
if untidy > 0 then tidy(untidy) end
if k.held ~= 0 then call('HSET', buffer, '', pack(META, epoch, seq, held + k.held)) end
return answers
