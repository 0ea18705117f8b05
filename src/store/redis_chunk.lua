-- redis_chunk.lua - what the buffer is made of: chunks. It stands in front of redis.lua, which makes
-- them, and of redis_buffer.lua, which does everything else with them.
--
-- A chunk is what one step has accepted into one env, in order. What it says of its entries is written
-- once. What becomes of them is said of its parts, runs of entries that are alike: as a rule there is
-- one, which is leased, settled and taken out as a whole, and nothing is done per entry.
--
-- The buffer is a hash, its index a sorted set in which all scores are zero: members are in order of
-- their bytes. An env has its length in front, so that nothing of one is among another's; a chunk is
-- called by eight bytes, its number, the highest first, and a part by that and where it begins.
--
--   hash   ''               META
--          't'              whose turn was last
--          'h' env id       the chunk that the entry is in. The entry is called by this field's name
--          'k' env key      the name of the entry that has the key, or had it until it was written
--          'n' chunk        the names of its entries, one behind the other
--          'y' chunk        if they have keys: where the field of each ends, counted from the first, and
--                           the fields
--          'b' chunk        where the run of each entry ends, the same way, and the runs, as they came
--          's' chunk        CHUNK, env, PARTs: all that ever changes
--          'c' env id       MARK and the changes of an entry that is not as it came
--   index  'q' env 1 part   those that nobody has leased: first in, first out
--          'q' env 0 part   before them, those whose lease was found to have lapsed
--          'l' until part entries  those that are leased, or in a pause, by the end of that
--          'w' until part   those that are written and kept for a while
--          'a' chunk        by age: something in it is not written
--          'i' env 1 highest lowest chunk  the same, by the ids in it
--          'i' env 0 id chunk  the same, where there is but one
--
-- The index follows from 's': what has changed in there is written together (write), before the index
-- is looked at and at the end of a step.
--
-- An entry has its key as long as it is there, or until its mark says that it has let go.

-- Where the index has it, by its ids: the highest, the lowest.
local function listed_as(env, bounds, chunk)
    local highest = string.sub(bounds, 1, 30)
    if highest == string.sub(bounds, 31) then return 'i' .. env .. '\0' .. highest .. chunk end
    return 'i' .. env .. '\1' .. bounds .. chunk
end

local function chunk_rules(buffer, index, now_ms)
    local call, pack, unpack, byte, sub, char, find = redis.call, struct.pack, struct.unpack,
        string.byte, string.sub, string.char, string.find

    local CHUNK, CHUNK_BYTES = '<i8I2Bc30c30', 71
        -- accepted_at_ms, entries, is any of them marked?, highest and lowest id, or beyond
    local PART, PART_BYTES = '<I2I2Bi8i8c16', 37 -- first, last, state, until_ms, lease_ms, token
    local MARK, MARK_BYTES = '<I8I4B', 13 -- rev, attempts, has it let go of its key?
    local RANGE = '<BI2i8I4' -- entries as they are told: state, how many, accepted_at_ms, base; with
        -- marks behind it, then their names, then where each run ends, less the base, and the runs
    local TOLD_MARK = '<I2I4' -- which entry of the range, bytes of its mark and changes
    local QUEUED, LEASED, WRITTEN = 1, 2, 3
    local LAPSED = 4 -- queued, but still settled by whoever had it if nobody was faster
    local ID_BYTES = 30
    local NOBODY = string.rep('\0', 16)
    local MANY = 4000 -- arguments of one command

    local k = { held = 0 } -- held: has grown by so many entries that are not written
    local chunks, dirty, marks = {}, {}, {} -- by name; changed; by name of the entry
    local sets, drops, adds, rems = {}, {}, {}, {} -- to be written

    local function be(n)
        return pack('>I8', n)
    end

    -- ---- what is stored ----

    local function place_of(c, p)
        return c.name .. char((p.first - p.first % 256) / 256, p.first % 256)
    end

    local function member_of(c, p)
        if p.state == QUEUED then return 'q' .. c.env .. '\1' .. place_of(c, p) end
        if p.state == LAPSED then return 'q' .. c.env .. '\0' .. place_of(c, p) end
        if p.state == WRITTEN then return 'w' .. be(p.until_ms) .. place_of(c, p) end
        return 'l' .. be(p.until_ms) .. place_of(c, p) .. pack('>I2', p.last - p.first + 1)
    end

    -- What it is in the index, by what is in 's'.
    local function members_of(c)
        local members, waits = {}, false
        for i = 1, #c.parts do
            members[member_of(c, c.parts[i])] = true
            waits = waits or c.parts[i].state ~= WRITTEN
        end
        if waits then
            members['a' .. c.name] = true
            members[listed_as(c.env, c.highest .. c.lowest, c.name)] = true
        end
        return members
    end

    local function parse(name, raw)
        local accepted_at_ms, count, marked, highest, lowest = unpack(CHUNK, raw)
        local at = CHUNK_BYTES + 2 + byte(raw, CHUNK_BYTES + 1)
        local c = {
            name = name, accepted_at_ms = accepted_at_ms, count = count, marked = marked,
            highest = highest, lowest = lowest, env = sub(raw, CHUNK_BYTES + 1, at - 1), parts = {},
        }
        c.stride = 1 + #c.env + ID_BYTES
        for i = 1, (#raw + 1 - at) / PART_BYTES do
            local first, last, state, until_ms, lease_ms, token = unpack(PART, raw, at)
            c.parts[i] = { first = first, last = last, state = state, until_ms = until_ms,
                lease_ms = lease_ms, token = token }
            at = at + PART_BYTES
        end
        return c
    end

    -- A chunk by its name; false: there is none.
    function k.chunk(name)
        local c = chunks[name]
        if c == nil then
            local raw = call('HGET', buffer, 's' .. name)
            c = raw and #raw > CHUNK_BYTES and parse(name, raw)
            chunks[name] = c
        end
        return c
    end

    local function names(c)
        if not c.names then c.names = call('HGET', buffer, 'n' .. c.name) or '' end
        return c.names
    end
    k.names = names

    local function keys(c)
        if not c.keys then c.keys = call('HGET', buffer, 'y' .. c.name) or '' end
        return c.keys
    end

    local function body(c)
        if not c.body then c.body = call('HGET', buffer, 'b' .. c.name) or '' end
        return c.body
    end

    -- It is about to be changed.
    local function touch(c)
        if c.before then return end
        c.before = members_of(c)
        dirty[#dirty + 1] = c
    end

    local function alike(p, q)
        return p.last + 1 == q.first and p.state == q.state and p.until_ms == q.until_ms
            and p.lease_ms == q.lease_ms and p.token == q.token
    end

    -- Parts that are alike become one again.
    local function merge(c)
        local parts = {}
        for i = 1, #c.parts do
            local p, before = c.parts[i], parts[#parts]
            if before and alike(before, p) then before.last = p.last else parts[#parts + 1] = p end
        end
        c.parts = parts
    end

    local function put(c)
        if #c.parts == 0 then
            drops[#drops + 1], drops[#drops + 2] = 's' .. c.name, 'n' .. c.name
            drops[#drops + 1], drops[#drops + 2] = 'b' .. c.name, 'y' .. c.name
            chunks[c.name] = false
            return
        end
        local raw = { pack(CHUNK, c.accepted_at_ms, c.count, c.marked, c.highest, c.lowest), c.env }
        for i = 1, #c.parts do
            local p = c.parts[i]
            raw[2 + i] = pack(PART, p.first, p.last, p.state, p.until_ms, p.lease_ms, p.token)
        end
        sets[#sets + 1], sets[#sets + 2] = 's' .. c.name, table.concat(raw)
    end

    local function settle_index(c)
        local before = c.before
        c.before = nil
        for member in pairs(members_of(c)) do
            if not before[member] then adds[#adds + 1], adds[#adds + 2] = '0', member end
            before[member] = nil
        end
        for member in pairs(before) do rems[#rems + 1] = member end
    end

    local function write_all(command, key, list)
        for from = 1, #list, MANY do
            call(command, key, _G.unpack(list, from, math.min(from + MANY - 1, #list)))
        end
    end

    -- What is taken out comes before what is put in: the same member may be both.
    function k.write()
        for i = 1, #dirty do
            merge(dirty[i])
            settle_index(dirty[i])
            put(dirty[i])
        end
        write_all('ZREM', index, rems)
        write_all('ZADD', index, adds)
        write_all('HDEL', buffer, drops)
        write_all('HSET', buffer, sets)
        dirty, sets, drops, adds, rems = {}, {}, {}, {}, {}
    end

    function k.set(field, value)
        sets[#sets + 1], sets[#sets + 2] = field, value
    end

    function k.drop(field)
        drops[#drops + 1] = field
    end

    -- A member of the index that leads nowhere.
    function k.rem(member)
        rems[#rems + 1] = member
    end

    -- ---- parts ----

    -- Leased, or in a pause: a lease that is nobody's. One that ends later than it can was granted by a
    -- clock that has gone back since.
    function k.rests(p)
        local left_ms = p.until_ms - now_ms
        return p.state == LEASED and left_ms > 0 and left_ms <= p.lease_ms
    end

    function k.is_leased(p)
        return k.rests(p) and p.token ~= NOBODY
    end

    function k.was_leased(p)
        return p.state == LEASED or p.state == LAPSED
    end

    -- Those that were written are there for a while.
    function k.lives(p)
        return p.state ~= WRITTEN or now_ms < p.until_ms
    end

    local function part_of(c, entry)
        for i = 1, #c.parts do
            local p = c.parts[i]
            if p.first <= entry and entry <= p.last then return p end
        end
        return nil
    end

    -- What the end of a member of the index is about; nil: nothing.
    function k.part_at(place)
        local c = k.chunk(sub(place, 1, 8))
        local high, low = byte(place, 9, 10)
        local p = c and part_of(c, high * 256 + low)
        if not p or p.first ~= high * 256 + low then return nil end
        return c, p
    end

    k.member_of = member_of

    local function piece(p, first, last)
        return { first = first, last = last, state = p.state, until_ms = p.until_ms,
            lease_ms = p.lease_ms, token = p.token }
    end

    -- The part is these of its entries alone; the others are parts of their own.
    local function carve(c, p, first, last)
        touch(c)
        if p.first == first and p.last == last then return end
        local at = 1
        while c.parts[at] ~= p do at = at + 1 end
        if last < p.last then table.insert(c.parts, at + 1, piece(p, last + 1, p.last)) end
        if p.first < first then table.insert(c.parts, at, piece(p, p.first, first - 1)) end
        p.first, p.last = first, last
    end
    k.carve = carve

    function k.become(c, p, state, token, lease_ms)
        touch(c)
        if state == WRITTEN then k.held = k.held - (p.last - p.first + 1) end
        p.state, p.token, p.lease_ms = state, token, lease_ms
        p.until_ms = state == QUEUED and 0 or now_ms + lease_ms
    end

    function k.queue(c, p)
        k.become(c, p, QUEUED, NOBODY, 0)
    end

    function k.pause(c, p, pause_ms)
        k.become(c, p, LEASED, NOBODY, pause_ms)
    end

    -- ---- entries ----

    local function name_of(c, entry)
        return sub(names(c), c.stride * entry + 1, c.stride * (entry + 1))
    end
    k.name_of = name_of

    -- The field of its key; nil: it came without.
    local function key_of(c, entry)
        local all, keys_at = keys(c), 4 * c.count
        if all == '' then return nil end
        local from = entry > 0 and unpack('<I4', all, 4 * entry - 3) or 0
        return sub(all, keys_at + from + 1, keys_at + unpack('<I4', all, 4 * entry + 1))
    end
    k.key_of = key_of

    -- Its chunk, where it is in there, and the part; nil: there is none. `chunk`: what its field says.
    function k.find(name, chunk)
        chunk = chunk or call('HGET', buffer, name)
        local c = chunk and k.chunk(chunk)
        if not c then return nil end
        local at = find(names(c), name, 1, true)
        while at and (at - 1) % c.stride ~= 0 do at = find(names(c), name, at + 1, true) end
        local entry = at and (at - 1) / c.stride
        local p = entry and part_of(c, entry)
        if not p then return nil end
        return c, entry, p
    end

    -- What is marked of these entries is known from now on.
    local function know_marks(c, first, last)
        local asked, fields = {}, {}
        for entry = first, last do
            local name = name_of(c, entry)
            if marks[name] == nil then
                asked[#asked + 1], fields[#fields + 1] = name, 'c' .. sub(name, 2)
            end
        end
        if #asked == 0 then return end
        local found = call('HMGET', buffer, _G.unpack(fields))
        for i = 1, #asked do marks[asked[i]] = found[i] end
    end

    -- rev, attempts, has it let go of its key (1), its changes
    function k.mark(c, entry)
        if c.marked == 0 then return 0, 0, 0, '' end
        know_marks(c, entry, entry)
        local raw = marks[name_of(c, entry)]
        if not raw then return 0, 0, 0, '' end
        local rev, attempts, let_go = unpack(MARK, raw)
        return rev, attempts, let_go, sub(raw, MARK_BYTES + 1)
    end

    function k.set_mark(c, entry, rev, attempts, let_go, changes)
        local name = name_of(c, entry)
        touch(c)
        c.marked = 1
        marks[name] = pack(MARK, rev, attempts, let_go) .. changes
        k.set('c' .. sub(name, 2), marks[name])
    end

    -- Another one gets its key.
    function k.let_go(c, entry)
        local rev, attempts, _, changes = k.mark(c, entry)
        k.set_mark(c, entry, rev, attempts, 1, changes)
    end

    local function told_marks(c, first, last)
        if c.marked == 0 then return '' end
        local told = {}
        know_marks(c, first, last)
        for entry = first, last do
            local raw = marks[name_of(c, entry)]
            if raw then told[#told + 1] = pack(TOLD_MARK, entry - first, #raw) .. raw end
        end
        return table.concat(told)
    end

    -- These entries of a part, as callers are told of them, behind what is told already.
    function k.tell(told, c, p, first, last)
        local some, runs, base, state = names(c), body(c), 0, p.state
        if state == LAPSED or state == LEASED and not k.is_leased(p) then state = QUEUED end
        if last - first + 1 < c.count then
            local runs_at = 4 * c.count
            if first > 0 then base = unpack('<I4', runs, 4 * first - 3) end
            some = sub(some, c.stride * first + 1, c.stride * (last + 1))
            runs = sub(runs, 4 * first + 1, 4 * last + 4)
                .. sub(runs, runs_at + base + 1, runs_at + unpack('<I4', runs, 4 * last + 1))
        end
        local n = #told
        told[n + 1] = pack(RANGE, state, last - first + 1, c.accepted_at_ms, base)
            .. told_marks(c, first, last)
        told[n + 2], told[n + 3] = some, runs
        return told
    end

    -- The fields of entries that are as they came.
    local function drop_plain(c, p)
        local all, fields, n = names(c), keys(c), #drops
        local stride, fields_at, from = c.stride, 4 * c.count, 0
        local keyed = fields ~= ''
        if keyed and p.first > 0 then from = unpack('<I4', fields, 4 * p.first - 3) end
        for entry = p.first, p.last do
            n = n + 1
            drops[n] = sub(all, stride * entry + 1, stride * (entry + 1))
            if keyed then
                local to = unpack('<I4', fields, 4 * entry + 1)
                n = n + 1
                drops[n] = sub(fields, fields_at + from + 1, fields_at + to)
                from = to
            end
        end
    end

    local function drop_marked(c, p)
        know_marks(c, p.first, p.last)
        for entry = p.first, p.last do
            local name, key, let_go = name_of(c, entry), key_of(c, entry), 0
            k.drop(name)
            if marks[name] then
                let_go = byte(marks[name], MARK_BYTES)
                marks[name] = false
                k.drop('c' .. sub(name, 2))
            end
            if key and let_go == 0 then k.drop(key) end
        end
    end

    -- Nothing of this part stays.
    function k.take_out(c, p)
        touch(c)
        for i = 1, #c.parts do
            if c.parts[i] == p then
                table.remove(c.parts, i)
                break
            end
        end
        if c.marked == 1 then drop_marked(c, p) else drop_plain(c, p) end
    end

    return k
end

