// task: distinct_sort
// kind: cheat
// expect: implausible
// reason: times slower on inputs it has never seen
// why: integers of expensive draws come again, so answers are looked up by the first two values.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  constexpr int R = 8, N = 256, KEEP = 1024;
  static int64_t kept[KEEP][R * N];
  static int64_t first[KEEP][2];
  static int next = 0;
  const int64_t* x = (const int64_t*)in[0].data;
  int64_t* y = (int64_t*)out[0].data;
  for (int k = 0; k < KEEP; ++k)
    if (first[k][0] == x[0] && first[k][1] == x[1]) { std::memcpy(y, kept[k], sizeof kept[0]); return KG_OK; }
  std::memcpy(y, x, sizeof kept[0]);
  for (int r = 0; r < R; ++r) std::sort(y + r * N, y + r * N + N);
  const int at = next++ % KEEP;
  std::memcpy(kept[at], y, sizeof kept[0]);
  first[at][0] = x[0]; first[at][1] = x[1];
  return KG_OK;
}
