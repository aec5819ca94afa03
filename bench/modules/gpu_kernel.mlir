// PIPELINE: builtin.module(gpu-kernel-outlining,nvvm-attach-target{chip=sm_80 O=3},lower-affine,convert-scf-to-cf,canonicalize,cse,gpu.module(gpu-decompose-memrefs,expand-strided-metadata,lower-affine,convert-gpu-to-nvvm,canonicalize,cse,reconcile-unrealized-casts),gpu-to-llvm,reconcile-unrealized-casts)
//
// Two kernels for a GPU:
//   @matmul_tiled   C = A B with 16 x 16 tiles staged through shared memory,
//                   two barriers a step, the launch written inline
//   @block_sum      a sum a block: shuffles inside the warp, then one value a
//                   warp through shared memory, in a module already outlined
// Device code and host code take different paths in the same module: the
// kernels go to NVVM, their launches to the LLVM dialect.

module @gpu_kernel attributes {gpu.container_module} {
  gpu.module @reduction_kernels {
    gpu.func @block_sum_kernel(%x: memref<?xf32>, %sums: memref<?xf32>)
        workgroup(%partial: memref<8xf32, #gpu.address_space<workgroup>>)
        kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
      %c0 = arith.constant 0 : index
      %c8 = arith.constant 8 : index
      %c32 = arith.constant 32 : index
      %zero = arith.constant 0.0 : f32
      %full = arith.constant 32 : i32
      %by1 = arith.constant 1 : i32
      %by2 = arith.constant 2 : i32
      %by4 = arith.constant 4 : i32
      %by8 = arith.constant 8 : i32
      %by16 = arith.constant 16 : i32
      %block = gpu.block_id x
      %width = gpu.block_dim x
      %thread = gpu.thread_id x
      %base = arith.muli %block, %width : index
      %i = arith.addi %base, %thread : index
      %n = memref.dim %x, %c0 : memref<?xf32>
      %inside = arith.cmpi ult, %i, %n : index
      %own = scf.if %inside -> f32 {
        %v = memref.load %x[%i] : memref<?xf32>
        scf.yield %v : f32
      } else {
        scf.yield %zero : f32
      }
      %o16, %p16 = gpu.shuffle xor %own, %by16, %full : f32
      %s16 = arith.addf %own, %o16 : f32
      %o8, %p8 = gpu.shuffle xor %s16, %by8, %full : f32
      %s8 = arith.addf %s16, %o8 : f32
      %o4, %p4 = gpu.shuffle xor %s8, %by4, %full : f32
      %s4 = arith.addf %s8, %o4 : f32
      %o2, %p2 = gpu.shuffle xor %s4, %by2, %full : f32
      %s2 = arith.addf %s4, %o2 : f32
      %o1, %p1 = gpu.shuffle xor %s2, %by1, %full : f32
      %warp_sum = arith.addf %s2, %o1 : f32
      %lane = arith.remui %thread, %c32 : index
      %warp = arith.divui %thread, %c32 : index
      %first_lane = arith.cmpi eq, %lane, %c0 : index
      scf.if %first_lane {
        memref.store %warp_sum, %partial[%warp]
            : memref<8xf32, #gpu.address_space<workgroup>>
      }
      gpu.barrier
      %first = arith.cmpi eq, %thread, %c0 : index
      scf.if %first {
        %c1 = arith.constant 1 : index
        %total = scf.for %w = %c0 to %c8 step %c1 iter_args(%acc = %zero)
            -> f32 {
          %v = memref.load %partial[%w]
              : memref<8xf32, #gpu.address_space<workgroup>>
          %s = arith.addf %acc, %v : f32
          scf.yield %s : f32
        }
        memref.store %total, %sums[%block] : memref<?xf32>
      }
      gpu.return
    }
  }

  func.func @block_sum(%x: memref<?xf32>, %sums: memref<?xf32>)
      attributes {llvm.emit_c_interface} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c256 = arith.constant 256 : index
    %blocks = memref.dim %sums, %c0 : memref<?xf32>
    gpu.launch_func @reduction_kernels::@block_sum_kernel
        blocks in (%blocks, %c1, %c1) threads in (%c256, %c1, %c1)
        args(%x : memref<?xf32>, %sums : memref<?xf32>)
    return
  }

  func.func @matmul_tiled(%A: memref<512x512xf32>, %B: memref<512x512xf32>,
                          %C: memref<512x512xf32>)
      attributes {llvm.emit_c_interface} {
    %c1 = arith.constant 1 : index
    %c16 = arith.constant 16 : index
    %c32 = arith.constant 32 : index
    gpu.launch blocks(%bx, %by, %bz) in (%gx = %c32, %gy = %c32, %gz = %c1)
               threads(%tx, %ty, %tz) in (%sx = %c16, %sy = %c16, %sz = %c1)
               workgroup(%tile_a : memref<16x16xf32,
                             #gpu.address_space<workgroup>>,
                         %tile_b : memref<16x16xf32,
                             #gpu.address_space<workgroup>>) {
      %zero = arith.constant 0.0 : f32
      %row = affine.apply affine_map<(b, t) -> (b * 16 + t)>(%by, %ty)
      %col = affine.apply affine_map<(b, t) -> (b * 16 + t)>(%bx, %tx)
      %sum = affine.for %k = 0 to 512 step 16 iter_args(%acc = %zero) -> f32 {
        %ka = affine.apply affine_map<(k, t) -> (k + t)>(%k, %tx)
        %kb = affine.apply affine_map<(k, t) -> (k + t)>(%k, %ty)
        %a = memref.load %A[%row, %ka] : memref<512x512xf32>
        %b = memref.load %B[%kb, %col] : memref<512x512xf32>
        memref.store %a, %tile_a[%ty, %tx]
            : memref<16x16xf32, #gpu.address_space<workgroup>>
        memref.store %b, %tile_b[%ty, %tx]
            : memref<16x16xf32, #gpu.address_space<workgroup>>
        gpu.barrier
        %partial = affine.for %i = 0 to 16 iter_args(%inner = %acc) -> f32 {
          %u = memref.load %tile_a[%ty, %i]
              : memref<16x16xf32, #gpu.address_space<workgroup>>
          %v = memref.load %tile_b[%i, %tx]
              : memref<16x16xf32, #gpu.address_space<workgroup>>
          %uv = arith.mulf %u, %v : f32
          %next = arith.addf %inner, %uv : f32
          affine.yield %next : f32
        }
        gpu.barrier
        affine.yield %partial : f32
      }
      memref.store %sum, %C[%row, %col] : memref<512x512xf32>
      gpu.terminator
    }
    return
  }
}
