-- redis_buffer.lua - entries of the buffer, in one atomic step. What puts them there is in redis.lua,
-- since it decides on a claim, too.
--
-- KEYS  the buffer of a shard, its index
-- ARGV  now_ms or 0; then per op an OP and three arguments
--         get     env, id or key
--         append  env, id, change
--         lease   env, id: that one; both empty: whose turn it is
--         settle  '', '', SETTLEs
--         list    env, id to begin behind
--         stats
-- gives now_ms, epoch ('': there is no buffer), then per op: outcome, three numbers, entries; or the
--       outcome alone
--
-- The buffer is a hash, its index a sorted set in which all scores are zero: members are in order of
-- their bytes. What an entry is called, its name, is env and id with the length of the env in front,
-- so that no env's names are among another's:
--
--   hash   ''                    META
--          't'                   whose turn was last: an env with its length
--          'h' name              HEADER, the key, and a short run; in redis.lua, too
--          'r' name              a run that is not short, as it came; never written again
--          'c' name              what was changed since
--          'k' env key           id of the entry that has the key
--   index  'i' name              by id: those that are not written
--          'q' env 1 seq id      those that nobody has leased: first in, first out
--          'q' env 0 seq id      before them, those whose lease was found to have lapsed
--          'l' until name        those that are leased, by the end of the lease
--          'a' seq name          those that are leased or lapsed, by age
--          'w' until name        those that are written and kept for a while
--
-- A command per entry would cost more than everything else. So what an op is about is read together,
-- what it changes is written together at its end, or before the index is looked at again, and what has
-- been read of the hash is known until the end of the step.
--
-- Two keys, and both are named: a slot of a cluster that moves is never seen half here and half there
-- (Redis says TRYAGAIN). Nothing in here expires by itself; what was written is taken out, when its
-- time has come, by whoever leases or settles, a few at a time.

local call, pack, unpack, byte, sub, char, find, reverse = redis.call, struct.pack, struct.unpack,
    string.byte, string.sub, string.char, string.find, string.reverse

local OP = '<BBI8i8c16I4I4' -- kind, flags, rev, lease_ms, token, limit, env_limit
local META = '<c8I8' -- epoch, lost with the entries; seq of the last
local HEADER, HEADER_BYTES = '<BI8I4i8>I8<i8i8c16I2', 63
    -- state, rev, attempts, accepted_at_ms, seq, until_ms, lease_ms, token, bytes of the key
local TAIL = '<i8i8c16' -- the last of them but one, from byte 30 to 61
local ENTRY = '<BI8I4i8BI4' -- as it is told: state, rev, attempts, accepted_at_ms, bytes of env and run

local QUEUED, LEASED, WRITTEN = 1, 2, 3
local LAPSED = 4 -- queued, but still settled by whoever had it if nobody was faster
local IN_PROGRESS, OK, ABSENT, CONFLICT = 3, 8, 9, 11
local SETTLE_WRITTEN, SETTLE_FAILED = 0, 2
local GET, BY_KEY, FREES_KEY = 1, 1, 1
local ID_BYTES = 30
local KEEP_MS = 30000
local ENVS_MAX, SPARE, TIDY = 100, 256, 16
local ENVS_LOOKED_AT = 10000
local ANSWER_BYTES_MAX = 8 * 1024 * 1024
local NOBODY, REV_0 = string.rep('\0', 16), string.rep('\0', 8)
local LEASED_BYTE, WRITTEN_BYTE = char(LEASED), char(WRITTEN)
local MANY = 4000 -- arguments of one command

local buffer, index = KEYS[1], KEYS[2]
local now_ms = unpack('<i8', ARGV[1])
if now_ms == 0 then
    local time = call('TIME')
    now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
end

local known = {} -- by field; false: it is not there

-- Those who look for a key are many, and most find nothing: for them alone, nothing else of this is
-- made.
do
    local fields, answers, alone, miss = { '' }, { now_ms, '' }, true, true
    for at = 2, #ARGV, 4 do
        local kind, flags = byte(ARGV[at], 1, 2)
        if kind == GET and flags == BY_KEY then
            local env = ARGV[at + 1]
            fields[#fields + 1] = 'k' .. char(#env) .. env .. ARGV[at + 2]
            answers[#answers + 1] = ABSENT
        else
            alone = false
        end
    end
    local found = call('HMGET', buffer, _G.unpack(fields))
    for i = 1, #fields do known[fields[i]] = found[i] end
    for i = 2, #fields do miss = miss and not found[i] end
    if found[1] then answers[2] = unpack(META, found[1]) end
    if alone and miss then return answers end
end

local function be(n)
    return pack('>I8', n)
end

-- ---- reading and writing ----

local sets, drops, adds, rems = {}, {}, {}, {} -- to be written
local freed, freed_by = {}, {} -- fields of keys, and who lets go of them

local function some(list, from)
    return _G.unpack(list, from, math.min(from + MANY - 1, #list))
end

local function know(fields)
    local asked = {}
    for i = 1, #fields do
        if known[fields[i]] == nil then asked[#asked + 1] = fields[i] end
    end
    for from = 1, #asked, MANY do
        local found = call('HMGET', buffer, some(asked, from))
        for i = 1, #found do known[asked[from + i - 1]] = found[i] end
    end
end

local function field(name)
    if known[name] == nil then known[name] = call('HGET', buffer, name) end
    return known[name]
end

local function set(name, value)
    known[name] = value
    sets[#sets + 1], sets[#sets + 2] = name, value
end

local function drop(name)
    known[name] = false
    drops[#drops + 1] = name
end

local function add(member)
    adds[#adds + 1], adds[#adds + 2] = 0, member
end

local function rem(member)
    rems[#rems + 1] = member
end

local function write_all(command, key, list)
    for from = 1, #list, MANY do call(command, key, some(list, from)) end
end

-- What is taken out comes before what is put in: the same member may be both.
local function write()
    if #rems + #adds + #sets + #drops + #freed == 0 then return end
    know(freed)
    for i = 1, #freed do
        if known[freed[i]] == freed_by[i] then drop(freed[i]) end
    end
    write_all('ZREM', index, rems)
    write_all('ZADD', index, adds)
    write_all('HSET', buffer, sets)
    write_all('HDEL', buffer, drops)
    sets, drops, adds, rems, freed, freed_by = {}, {}, {}, {}, {}, {}
end

-- ---- the entry in hand ----

local e = { name = '', state = 0, rev = 0, attempts = 0, accepted_at_ms = 0, seq = 0, until_ms = 0,
    lease_ms = 0, token = '', key = '', run = '' }

-- Is there one that counts?
local function take(name)
    local raw = field('h' .. name)
    if not raw or #raw < HEADER_BYTES then return false end
    e.name = name
    local key_len
    e.state, e.rev, e.attempts, e.accepted_at_ms, e.seq, e.until_ms, e.lease_ms, e.token, key_len =
        unpack(HEADER, raw)
    e.key = sub(raw, HEADER_BYTES + 1, HEADER_BYTES + key_len)
    e.run = sub(raw, HEADER_BYTES + key_len + 1)
    return e.state ~= WRITTEN or now_ms < e.until_ms
end

local function key_bytes(raw)
    local low, high = byte(raw, 62, 63)
    return low + 256 * high
end

local function put()
    set('h' .. e.name, pack(HEADER, e.state, e.rev, e.attempts, e.accepted_at_ms, e.seq, e.until_ms,
        e.lease_ms, e.token, #e.key) .. e.key .. e.run)
end

local function name_of(env, id)
    return char(#env) .. env .. id
end

local function env_of(name)
    return sub(name, 1, 1 + byte(name))
end

local function id_of(name)
    return sub(name, 2 + byte(name))
end

-- Where the entry in hand is in the index, as it is now.
local function place()
    if e.state == LEASED then return 'l' .. be(e.until_ms) .. e.name end
    if e.state == WRITTEN then return 'w' .. be(e.until_ms) .. e.name end
    return 'q' .. env_of(e.name) .. (e.state == LAPSED and '\0' or '\1') .. be(e.seq) .. id_of(e.name)
end

-- One that ends later than it can was granted by a clock that has gone back since.
local function is_leased()
    local left_ms = e.until_ms - now_ms
    return e.state == LEASED and left_ms > 0 and left_ms <= e.lease_ms
end

-- As callers are told of it.
local function entry()
    local run, changes = e.run, ''
    if run == '' then run = call('HGET', buffer, 'r' .. e.name) or '' end
    if e.rev > 0 then changes = call('HGET', buffer, 'c' .. e.name) or '' end
    local state = e.state
    if state == LAPSED or state == LEASED and not is_leased() then state = QUEUED end
    return pack(ENTRY, state, e.rev, e.attempts, e.accepted_at_ms, byte(e.name), #run)
        .. sub(e.name, 2) .. run .. changes
end

local function range(from, to, most)
    write()
    return call('ZRANGEBYLEX', index, from, to, 'LIMIT', 0, most)
end

local function age()
    return 'a' .. be(e.seq) .. e.name
end

local function was_leased()
    return e.state == LEASED or e.state == LAPSED
end

local function become(state, token, lease_ms)
    rem(place())
    if was_leased() then rem(age()) end
    e.state, e.token, e.lease_ms, e.until_ms = state, token, lease_ms, now_ms + lease_ms
    put()
    add(place())
    if was_leased() then add(age()) end
end

local function free_key()
    if e.key == '' then return end
    freed[#freed + 1], freed_by[#freed_by + 1] = 'k' .. env_of(e.name) .. e.key, id_of(e.name)
    e.key = ''
end

-- ---- one entry ----

local function get(q)
    local id = q.a
    if q.flags == BY_KEY then id = field('k' .. name_of(q.env, q.a)) end
    if not id or not take(name_of(q.env, id)) then return ABSENT end
    if q.flags == BY_KEY and e.state == WRITTEN then return ABSENT end
    return { OK, 0, 0, 0, entry() }
end

-- A lease that has lapsed ends here: whoever had it has not seen the change, and must not settle.
local function append(q)
    if not take(name_of(q.env, q.a)) or e.state == WRITTEN then return ABSENT end
    if is_leased() then return { IN_PROGRESS, 0, 0, 0 } end
    if e.rev ~= q.rev then return { CONFLICT, 0, 0, 0 } end
    local changes = e.rev > 0 and field('c' .. e.name) or ''
    e.rev = e.rev + 1
    if q.flags == FREES_KEY then free_key() end
    set('c' .. e.name, changes .. q.b)
    if e.state == QUEUED then put() else become(QUEUED, NOBODY, 0) end
    return { OK, 0, 0, 0 }
end

-- ---- what drainers do ----

-- What was leased and has lapsed is queued again, in front. Its token still settles it. Gives whether
-- all of them had.
local function requeue(members)
    for _, member in ipairs(members) do
        if not take(sub(member, 10)) or place() ~= member then
            rem(member)
        elseif is_leased() then
            return false
        else
            become(LAPSED, e.token, 0)
        end
    end
    return #members > 0
end

local function last_leased(most)
    write()
    return call('ZREVRANGEBYLEX', index, '(m', '[l', 'LIMIT', 0, most)
end

-- At one end of them are those that have lapsed, at the other those of a clock that went back.
local function requeue_lapsed(most)
    requeue(range('[l', '(l' .. be(now_ms + 1), most))
    if requeue(last_leased(1)) then requeue(last_leased(most)) end
end

-- Leases for one op: what it has so far, and of which envs.
local function leases(q)
    local got, left, bytes, of_env = { OK, 0, 0, 0 }, q.limit, 0, {}
    local cap = q.env_limit > 0 and q.env_limit or q.limit

    -- What is the same in all of them. A header is changed where it changes, and not read: that is
    -- most of what a step like this costs.
    local until_ms = now_ms + q.lease_ms
    local tail, leased = pack(TAIL, until_ms, q.lease_ms, q.token), 'l' .. be(until_ms)
    local told = char(q.lease_ms > 0 and LEASED or QUEUED)

    local function tell(raw, name)
        local run, changes = sub(raw, HEADER_BYTES + 1 + key_bytes(raw)), ''
        if run == '' then run = call('HGET', buffer, 'r' .. name) or '' end
        if find(raw, REV_0, 2, true) ~= 2 then changes = call('HGET', buffer, 'c' .. name) or '' end
        got[#got + 1] = told .. sub(raw, 2, 21) .. sub(name, 1, 1) .. pack('<I4', #run)
            .. sub(name, 2) .. run .. changes
        left, bytes = left - 1, bytes + #got[#got]
        if bytes > ANSWER_BYTES_MAX then left = 0 end
    end

    -- A member of the queue of an env. False: nothing is behind it, or there was enough.
    local function lease(member, name, env)
        if left == 0 then return false end
        local raw = field('h' .. name)
        local lapsed = byte(member, #env + 2) == 0
        if not raw or #raw < HEADER_BYTES or byte(raw) ~= (lapsed and LAPSED or QUEUED)
            or find(member, sub(raw, 22, 29), #env + 3, true) ~= #env + 3 then
            rem(member)
            return false
        end
        rem(member)
        add(leased .. name)
        if not lapsed then add('a' .. sub(raw, 22, 29) .. name) end
        set('h' .. name, LEASED_BYTE .. sub(raw, 2, 29) .. tail .. sub(raw, 62))
        of_env[env] = (of_env[env] or 0) + 1
        tell(raw, name)
        return true
    end

    -- That one, whatever its turn.
    local function lease_one(name)
        if not take(name) or e.state == WRITTEN or is_leased() then return end
        become(LEASED, q.token, q.lease_ms)
        tell(field('h' .. name), name)
    end

    -- Envs that wait, those first that come after whose turn was last.
    local function waiting(turn)
        local envs, after, to, wrapped = {}, '[q' .. turn .. '\255', '(r', false
        while #envs < left and #envs < ENVS_MAX do
            local found = range(after, to, 1)[1]
            if found then
                envs[#envs + 1] = sub(found, 2, 2 + byte(found, 2))
                after = '[q' .. envs[#envs] .. '\255'
            elseif wrapped then
                break
            else
                after, to, wrapped = '[q', '(q' .. turn .. '\255', true
            end
        end
        return envs
    end

    -- All envs get the same, and what some do not need is for the others. Gives whose turn was last.
    local function queued(turn)
        local envs = waiting(turn)
        while left > 0 and #envs > 0 do
            local share, more = math.max(1, math.floor(left / #envs)), {}
            for _, env in ipairs(envs) do
                local most = math.min(share, left, cap - (of_env[env] or 0))
                local members = most > 0 and range('[q' .. env, '(q' .. env .. '\255', most) or {}
                local names, headers = {}, {}
                for j = 1, #members do
                    names[j] = env .. sub(members[j], #env + 11)
                    headers[j] = 'h' .. names[j]
                end
                know(headers)
                for j = 1, #members do
                    if lease(members[j], names[j], env) then turn = env end
                end
                if most > 0 and #members == most then more[#more + 1] = env end
            end
            envs = more
        end
        return turn
    end

    local function all()
        local before = field('t') or ''
        requeue_lapsed(left + SPARE)
        local turn = queued(before)
        if turn ~= before then set('t', turn) end
        if range('[l', '(r', 1)[1] then got[2] = 1 end -- leased or queued: it is worth asking again
    end

    if q.a == '' then
        all()
    else
        lease_one(name_of(q.env, q.a))
    end
    return got
end

-- As with leases, the header is changed and not read.
local function written(token)
    local until_ms = now_ms + KEEP_MS
    local tail, kept = pack(TAIL, until_ms, KEEP_MS, token), 'w' .. be(until_ms)
    return function(name)
        local raw = field('h' .. name)
        local state = raw and #raw >= HEADER_BYTES and byte(raw)
        if state ~= LEASED and state ~= LAPSED or find(raw, token, 46, true) ~= 46 then return 0 end
        local seq = sub(raw, 22, 29)
        rem('i' .. name)
        rem('a' .. seq .. name)
        if state == LEASED then
            rem('l' .. reverse(sub(raw, 30, 37)) .. name)
        else
            rem('q' .. env_of(name) .. '\0' .. seq .. id_of(name))
        end
        add(kept .. name)
        set('h' .. name, WRITTEN_BYTE .. sub(raw, 2, 29) .. tail .. sub(raw, 62))
        return 1
    end
end

local function back(name, how, token)
    if not take(name) or e.token ~= token or not was_leased() then return 0 end
    if how == SETTLE_FAILED then e.attempts = e.attempts + 1 end
    become(QUEUED, NOBODY, 0)
    return 1
end

local function settle(q)
    local hows, names, headers, at = {}, {}, {}, 1
    while at < #q.b do
        local how, env_len = byte(q.b, at, at + 1)
        local to, n = at + 1 + env_len + ID_BYTES, #names + 1
        hows[n], names[n] = how, sub(q.b, at + 1, to)
        headers[n] = 'h' .. names[n]
        at = to + 1
    end
    know(headers)
    local settled, write_off = 0, written(q.token)
    for i = 1, #names do
        local how = hows[i]
        settled = settled
            + (how == SETTLE_WRITTEN and write_off(names[i]) or back(names[i], how, q.token))
    end
    return { OK, settled, 0, 0 }
end

local function tidy(most)
    local members, headers = range('[w', '(w' .. be(now_ms + 1), most), {}
    for i = 1, #members do headers[i] = 'h' .. sub(members[i], 10) end
    know(headers)
    for _, member in ipairs(members) do
        local name = sub(member, 10)
        if not take(name) and e.name == name and e.state == WRITTEN and place() == member then
            free_key()
            drop('h' .. name)
            drop('r' .. name)
            drop('c' .. name)
        end
        rem(member)
    end
    write()
end

-- ---- all of them ----

local function list(q)
    local got, bytes = { OK, 0, 0, 0 }, 0
    local prefix = 'i' .. char(#q.env) .. q.env
    local from = '(' .. prefix .. (q.a ~= '' and q.a or '\255')
    local found = call('ZREVRANGEBYLEX', index, from, '[' .. prefix, 'LIMIT', 0, q.limit + 1)
    for i = 1, #found do
        if i > q.limit or bytes > ANSWER_BYTES_MAX then
            got[2] = 1
            break
        end
        if take(sub(found[i], 2)) then
            got[#got + 1] = entry()
            bytes = bytes + #got[#got]
        end
    end
    return got
end

-- The first of those that were leased, or of what an env has in its queue. Of more envs than can be
-- looked at in one step, those that are behind are not.
local function oldest()
    local first, seq = range('[a', '(b', 1)[1], nil
    if first then first, seq = sub(first, 10), sub(first, 2, 9) end
    local after = '[q'
    for _ = 1, ENVS_LOOKED_AT do
        local found = range(after, '(r', 1)[1]
        if not found then break end
        local env = sub(found, 2, 2 + byte(found, 2))
        local its_seq = sub(found, #env + 3, #env + 10)
        if not seq or its_seq < seq then first, seq = env .. sub(found, #env + 11), its_seq end
        after = '[q' .. env .. (byte(found, #env + 2) == 0 and '\1' or '\255')
    end
    return first
end

local function stats()
    local queued = call('ZLEXCOUNT', index, '[q', '(r')
    local lapsed = call('ZLEXCOUNT', index, '[l', '(l' .. be(now_ms + 1))
    local leased = call('ZLEXCOUNT', index, '[l' .. be(now_ms + 1), '(m')
    local first = oldest()
    local age_ms = first and take(first) and now_ms - e.accepted_at_ms or 0
    return { OK, queued + lapsed, leased, age_ms }
end

local kinds = { get, append, leases, settle, list, stats } -- as enum verb has them, from ACCEPT on
local LEASE, SETTLE = 3, 4

local meta = known['']
local answers = { now_ms, meta and unpack(META, meta) or '' }
local q = { flags = 0, rev = 0, lease_ms = 0, token = '', limit = 0, env_limit = 0, env = '', a = '',
    b = '' }
local untidy = 0

call('ZCARD', index) -- whatever else it is, it says so before anything is written
for at = 2, #ARGV, 4 do
    local kind
    kind, q.flags, q.rev, q.lease_ms, q.token, q.limit, q.env_limit = unpack(OP, ARGV[at])
    q.env, q.a, q.b = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
    local answer = kinds[kind](q)
    write()
    if kind == SETTLE then untidy = untidy + 2 * answer[2] end
    if kind == LEASE or kind == SETTLE then untidy = untidy + TIDY end
    answers[#answers + 1] = answer
end
if untidy > 0 then tidy(untidy) end
return answers
