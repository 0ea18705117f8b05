-- redis_gate.lua - core/gate.c for one gate, in one atomic step.
--
-- KEYS  the gate: a list; tripped_until_ms in front, then the times of its last triggers, oldest first
-- ARGV  HEAD; then the numbers of triggers that came together
-- gives how long it is tripped, then for each of those numbers how many of them pass

local call, unpack = redis.call, struct.unpack

local HEAD = '<i8i8i8i8i8' -- now_ms or 0, threshold, window_ms, hold_ms, grace_ms
local PUSH_MAX = 1000 -- what Lua can pass on at once is limited

local gate = KEYS[1]
local now_ms, threshold, window_ms, hold_ms, grace_ms = unpack(HEAD, ARGV[1])
if now_ms == 0 then
    local time = call('TIME')
    now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
end

local total = 0
for i = 2, #ARGV do total = total + ARGV[i] end

-- A clock that has gone back: what was counted is as if it had been counted now.
local function clip()
    local times = call('LRANGE', gate, 0, -1)
    call('DEL', gate)
    for from = 1, #times, PUSH_MAX do
        local some = {}
        for i = from, math.min(#times, from + PUSH_MAX - 1) do
            local most_ms = i == 1 and now_ms + hold_ms or now_ms
            some[#some + 1] = math.min(tonumber(times[i]), most_ms)
        end
        call('RPUSH', gate, _G.unpack(some))
    end
end

local last = call('LINDEX', gate, -1)
if last and tonumber(last) > now_ms then clip() end

local length = call('LLEN', gate)
local known = length > 0 and length - 1 or 0
local tripped_until_ms = length > 0 and tonumber(call('LINDEX', gate, 0)) or 0
local first = known > threshold and known - threshold or 0 -- those before were for a higher threshold
local old = length > 0 and call('LRANGE', gate, 1 + first, first + total) or {}
known = known - first

-- Is the n-th trigger of this step too many? If the one `threshold` before it is within the window.
local function over(n)
    local at = known + n - threshold
    if at < 1 then return false end
    local then_ms = at <= known and tonumber(old[at]) or now_ms
    return then_ms > now_ms - window_ms
end

local answers, n = { 0 }, 0
for i = 2, #ARGV do
    local passed = 0
    for _ = 1, ARGV[i] do
        n = n + 1
        local too_many = over(n)
        if too_many then tripped_until_ms = now_ms + hold_ms end
        if not too_many and now_ms >= tripped_until_ms then passed = passed + 1 end
    end
    answers[i] = passed
end
answers[1] = tripped_until_ms > now_ms and tripped_until_ms - now_ms or 0

local pushed = total < threshold and total or threshold
for from = 1, pushed, PUSH_MAX do
    local times = {}
    for i = 1, math.min(PUSH_MAX, pushed - from + 1) do times[i] = now_ms end
    call('RPUSH', gate, _G.unpack(times))
end
if length > 0 then
    local extra = first + known + pushed - threshold
    call('LTRIM', gate, 1 + (extra > 0 and extra or 0), -1)
end
call('LPUSH', gate, tripped_until_ms)
call('PEXPIRE', gate, window_ms + hold_ms + grace_ms)
return answers
