// Marks functions that a device may call, too.
#pragma once

#ifdef __CUDACC__
#define CORANK_HOST_DEVICE __host__ __device__
#else
#define CORANK_HOST_DEVICE
#endif
