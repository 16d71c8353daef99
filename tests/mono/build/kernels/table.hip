// A table under a symbol, the same bytes in every build.

#if defined(__AMDGCN__)
#define TABLE __attribute__((device, used, visibility("protected")))
extern "C" __attribute__((global)) void keep(int* x) { *x = 1; }
#else
#define TABLE __attribute__((used))
#endif

extern "C" {
TABLE extern const char layout_table[] = "Args.x 0 8\nArgs.count 8 4\n";
TABLE char zeroed_table[64];
}
