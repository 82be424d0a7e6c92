// CORANK_HOST_DEVICE marks functions that both the host and a CUDA device may call.
#pragma once

#ifdef __CUDACC__
#define CORANK_HOST_DEVICE __host__ __device__
#else
#define CORANK_HOST_DEVICE
#endif
