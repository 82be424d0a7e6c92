#ifdef __AVX2__
#include "merge/word_kernel_vector.hpp"
#include "merge/word_kernel_x86.hpp"

namespace corank {
extern const WordKernel avx2_word_kernel = vector_kernel<X86Vectors>;
}
#endif
