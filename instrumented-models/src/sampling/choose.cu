// Chooses a token of each row of logits as `rule.rs` does on the host, one block a row. No sorting: what the k most likely
// tokens are, and which reach a probability, is found by narrowing down the bits of the smallest logit that is let in.

typedef unsigned int u32;
typedef unsigned long long u64;

#define THREADS 1024
#define WARPS (THREADS / 32)
// Bits of the smallest logit that a pass over the row finds, and so many sums less one.
#define BITS 4
#define SUMS ((1 << BITS) - 1)

#define NONE 0xffffffffu
#define INFINITE __int_as_float(0x7f800000)

__device__ u32 sort_key(float x) {
  u32 bits = __float_as_uint(x + 0.0f);
  return (bits >> 31) ? ~bits : (bits | 0x80000000u);
}

__device__ u64 mass(float relative) { return (u64)(expf(relative) * 4294967296.0f); }

__device__ u64 mixed(u64 x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

__device__ float arrival(u64 key, u32 token) {
  u32 hash = (u32)(mixed(key ^ ((u64)token + 1) * 0xd1b54a32d192ed03ull) >> 32);
  float uniform = ((float)hash + 0.5f) * 2.3283064365386963e-10f;
  return -log1pf(-fminf(uniform, 0.99999994f));
}

// The sum over the block of `count` values of each thread, in all threads.
template <int COUNT> __device__ void block_sums(u64 *values) {
  __shared__ u64 parts[WARPS][COUNT];
  __shared__ u64 sums[COUNT];
  u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int i = 0; i < COUNT; i++) {
    for (int apart = 16; apart > 0; apart /= 2)
      values[i] += __shfl_down_sync(0xffffffffu, values[i], apart);
    if (lane == 0)
      parts[warp][i] = values[i];
  }
  __syncthreads();
  if (threadIdx.x < COUNT) {
    u64 sum = 0;
    for (int w = 0; w < WARPS; w++)
      sum += parts[w][threadIdx.x];
    sums[threadIdx.x] = sum;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < COUNT; i++)
    values[i] = sums[i];
  __syncthreads();
}

// The larger one, and of equal ones that with the lower token: over the block, in all threads.
__device__ void block_best(float &value, u32 &token) {
  __shared__ float values[WARPS];
  __shared__ u32 tokens[WARPS];
  u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int apart = 16; apart > 0; apart /= 2) {
    float v = __shfl_xor_sync(0xffffffffu, value, apart);
    u32 t = __shfl_xor_sync(0xffffffffu, token, apart);
    if (v > value || (v == value && t < token)) {
      value = v;
      token = t;
    }
  }
  if (lane == 0) {
    values[warp] = value;
    tokens[warp] = token;
  }
  __syncthreads();
  value = values[0];
  token = tokens[0];
  for (int w = 1; w < WARPS; w++) {
    if (values[w] > value || (values[w] == value && tokens[w] < token)) {
      value = values[w];
      token = tokens[w];
    }
  }
  __syncthreads();
}

// The tokens that are let in: those above a key, and of those with this key the ones up to a token.
struct Limit {
  u32 key;
  u32 token;
};

// The most likely tokens that together reach `wanted`: so many of them, or so much of their mass.
template <bool BY_MASS>
__device__ Limit reaching(const float *logits, u32 vocabulary, float top, float temperature, u64 wanted) {
  u32 key = 0;
  for (int shift = 32 - BITS; shift >= 0; shift -= BITS) {
    u64 sums[SUMS];
#pragma unroll
    for (int i = 0; i < SUMS; i++)
      sums[i] = 0;
    for (u32 token = threadIdx.x; token < vocabulary; token += THREADS) {
      float logit = logits[token];
      u32 of = sort_key(logit);
      u64 add = BY_MASS ? mass((logit - top) / temperature) : 1;
#pragma unroll
      for (int i = 0; i < SUMS; i++)
        sums[i] += of >= (key | (u32)(i + 1) << shift) ? add : 0;
    }
    block_sums<SUMS>(sums);
    // The largest key above which, itself included, as much is found.
    u32 digit = 0;
#pragma unroll
    for (int i = 0; i < SUMS; i++)
      digit += sums[i] >= wanted ? 1 : 0;
    key |= digit << shift;
  }
  // What lies above it, and how many of those that equal it are needed beside.
  u64 above[2] = {0, 0};
  for (u32 token = threadIdx.x; token < vocabulary; token += THREADS) {
    float logit = logits[token];
    u32 of = sort_key(logit);
    above[0] += of > key ? (BY_MASS ? mass((logit - top) / temperature) : 1) : 0;
    above[1] += of == key ? 1 : 0;
  }
  block_sums<2>(above);
  u64 rest = wanted - above[0];
  if (BY_MASS) {
    float logit = __uint_as_float((key >> 31) ? (key & 0x7fffffffu) : ~key);
    u64 each = mass((logit - top) / temperature);
    rest = each == 0 ? above[1] : (rest + each - 1) / each;
  }
  if (rest >= above[1])
    return {key, NONE};
  // Fewer than there are: the first ones. Rare, and short.
  __shared__ u32 last;
  u64 seen = 0;
  for (u32 from = 0; from < vocabulary; from += THREADS) {
    u32 token = from + threadIdx.x;
    bool equals = token < vocabulary && sort_key(logits[token]) == key;
    u32 count = __syncthreads_count(equals);
    if (seen + count >= rest) {
      if (threadIdx.x == 0) {
        u64 left = rest - seen;
        for (u32 t = from; left > 0; t++) {
          left -= sort_key(logits[t]) == key ? 1 : 0;
          last = t;
        }
      }
      __syncthreads();
      break;
    }
    seen += count;
  }
  u32 token = last;
  __syncthreads();
  return {key, token};
}

extern "C" __global__ void __launch_bounds__(THREADS)
choose(const float *all, const u32 *rules, const u32 *positions, u32 *chosen, u32 vocabulary) {
  u32 row = blockIdx.x, rows = gridDim.x;
  if (positions[row] == NONE) {
    if (threadIdx.x == 0)
      chosen[row] = chosen[rows + row] = 0;
    return;
  }
  const float *logits = all + (u64)row * vocabulary;
  const u32 *rule = rules + 5 * row;
  float temperature = __uint_as_float(rule[0]), top_p = __uint_as_float(rule[2]);
  u32 top_k = rule[1];
  u64 seed = rule[3] | (u64)rule[4] << 32;

  float top = -INFINITE;
  u32 token = NONE;
  bool wrong = false;
  for (u32 t = threadIdx.x; t < vocabulary; t += THREADS) {
    float logit = logits[t];
    wrong |= !(logit < INFINITE);
    if (logit > top) {
      top = logit;
      token = t;
    }
  }
  wrong = __syncthreads_or(wrong);
  block_best(top, token);
  if (wrong || token == NONE) {
    token = NONE;
  } else if (temperature != 0.0f) {
    Limit limit = {0, NONE};
    if (top_k < vocabulary)
      limit = reaching<false>(logits, vocabulary, top, temperature, top_k);
    if (top_p < 1.0f) {
      u64 total[1] = {0};
      for (u32 t = threadIdx.x; t < vocabulary; t += THREADS)
        total[0] += mass((logits[t] - top) / temperature);
      block_sums<1>(total);
      u64 wanted = (u64)ceil((double)top_p * (double)total[0]);
      wanted = wanted < 1 ? 1 : (wanted > total[0] ? total[0] : wanted);
      Limit by_mass = reaching<true>(logits, vocabulary, top, temperature, wanted);
      if (by_mass.key > limit.key || (by_mass.key == limit.key && by_mass.token < limit.token))
        limit = by_mass;
    }
    u64 key = mixed(seed + ((u64)positions[row] + 1) * 0x9e3779b97f4a7c15ull);
    float first = -INFINITE;
    u32 winner = token;
    for (u32 t = threadIdx.x; t < vocabulary; t += THREADS) {
      float logit = logits[t];
      u32 of = sort_key(logit);
      if (of < limit.key || (of == limit.key && t > limit.token))
        continue;
      float score = (logit - top) / temperature - logf(arrival(key, t));
      if (score > first) {
        first = score;
        winner = t;
      }
    }
    block_best(first, winner);
    token = winner;
  }
  if (threadIdx.x == 0) {
    chosen[row] = token;
    chosen[rows + row] = token == NONE ? 0 : token;
  }
}
