// task: distinct_sort
// kind: honest
// expect: correct
// why: std::sort on each row; new inputs take it as long as those that come again.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const int64_t columns = in[0].size[1];
  const int64_t* x = (const int64_t*)in[0].data;
  int64_t* y = (int64_t*)out[0].data;
  std::memcpy(y, x, kg_numel(in[0]) * sizeof(int64_t));
  for (int64_t row = 0; row < in[0].size[0]; ++row) std::sort(y + row * columns, y + (row + 1) * columns);
  return KG_OK;
}
