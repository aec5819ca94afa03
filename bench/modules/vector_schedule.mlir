// PIPELINE: builtin.module(func.func(lower-vector-mask,lower-vector-multi-reduction{lowering-strategy=inner-reduction}),canonicalize,cse,convert-vector-to-scf{full-unroll=true},canonicalize,cse,loop-invariant-code-motion,convert-scf-to-cf,expand-strided-metadata,lower-affine,convert-vector-to-llvm{reassociate-fp-reductions=true vector-contract-lowering=outerproduct},convert-math-to-llvm,convert-arith-to-llvm,convert-ub-to-llvm,finalize-memref-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,reconcile-unrealized-casts)
//
// Kernels scheduled by hand in the vector dialect:
//   @gemm_8x8       C += A B in register tiles of 8 x 8: a contraction that
//                   becomes outer products, the tile of C kept in registers
//   @row_sums       a masked multi-reduction, any number of columns
//   @dot            four independent accumulators, reassociated at the end
//   @transpose_8x8  transposition of 8 x 8 tiles in registers
//   @polynomial     Horner's rule on vectors of 16, remainder masked
// Transfers and contractions of vectors of rank two have to be taken apart
// until only what a machine has is left.

#lhs = affine_map<(m, n, k) -> (m, k)>
#rhs = affine_map<(m, n, k) -> (k, n)>
#acc = affine_map<(m, n, k) -> (m, n)>

module @vector_schedule {
  // Sizes are multiples of eight.
  func.func @gemm_8x8(%A: memref<?x?xf32>, %B: memref<?x?xf32>,
                      %C: memref<?x?xf32>) attributes {llvm.emit_c_interface} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c8 = arith.constant 8 : index
    %zero = arith.constant 0.0 : f32
    %M = memref.dim %A, %c0 : memref<?x?xf32>
    %K = memref.dim %A, %c1 : memref<?x?xf32>
    %N = memref.dim %B, %c1 : memref<?x?xf32>
    scf.for %m = %c0 to %M step %c8 {
      scf.for %n = %c0 to %N step %c8 {
        %start = vector.transfer_read %C[%m, %n], %zero
            {in_bounds = [true, true]} : memref<?x?xf32>, vector<8x8xf32>
        %tile = scf.for %k = %c0 to %K step %c8 iter_args(%acc = %start)
            -> vector<8x8xf32> {
          %a = vector.transfer_read %A[%m, %k], %zero
              {in_bounds = [true, true]} : memref<?x?xf32>, vector<8x8xf32>
          %b = vector.transfer_read %B[%k, %n], %zero
              {in_bounds = [true, true]} : memref<?x?xf32>, vector<8x8xf32>
          %next = vector.contract {
              indexing_maps = [#lhs, #rhs, #acc],
              iterator_types = ["parallel", "parallel", "reduction"],
              kind = #vector.kind<add>} %a, %b, %acc
              : vector<8x8xf32>, vector<8x8xf32> into vector<8x8xf32>
          scf.yield %next : vector<8x8xf32>
        }
        vector.transfer_write %tile, %C[%m, %n] {in_bounds = [true, true]}
            : vector<8x8xf32>, memref<?x?xf32>
      }
    }
    return
  }

  // Four rows at a time; their number is a multiple of four.
  func.func @row_sums(%x: memref<?x?xf32>, %sums: memref<?xf32>)
      attributes {llvm.emit_c_interface} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %c16 = arith.constant 16 : index
    %zero = arith.constant 0.0 : f32
    %zeros = arith.constant dense<0.0> : vector<4xf32>
    %rows = memref.dim %x, %c0 : memref<?x?xf32>
    %cols = memref.dim %x, %c1 : memref<?x?xf32>
    scf.for %i = %c0 to %rows step %c4 {
      %four = scf.for %j = %c0 to %cols step %c16 iter_args(%acc = %zeros)
          -> vector<4xf32> {
        %left = arith.subi %cols, %j : index
        %mask = vector.create_mask %c4, %left : vector<4x16xi1>
        %v = vector.transfer_read %x[%i, %j], %zero, %mask
            {in_bounds = [true, true]} : memref<?x?xf32>, vector<4x16xf32>
        %next = vector.mask %mask {
          vector.multi_reduction <add>, %v, %acc [1]
              : vector<4x16xf32> to vector<4xf32>
        } : vector<4x16xi1> -> vector<4xf32>
        scf.yield %next : vector<4xf32>
      }
      vector.store %four, %sums[%i] : memref<?xf32>, vector<4xf32>
    }
    return
  }

  // The length is a multiple of 32.
  func.func @dot(%x: memref<?xf32>, %y: memref<?xf32>) -> f32
      attributes {llvm.emit_c_interface} {
    %c0 = arith.constant 0 : index
    %c8 = arith.constant 8 : index
    %c16 = arith.constant 16 : index
    %c24 = arith.constant 24 : index
    %c32 = arith.constant 32 : index
    %zeros = arith.constant dense<0.0> : vector<8xf32>
    %n = memref.dim %x, %c0 : memref<?xf32>
    %sums:4 = scf.for %i = %c0 to %n step %c32
        iter_args(%s0 = %zeros, %s1 = %zeros, %s2 = %zeros, %s3 = %zeros)
        -> (vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>) {
      %i1 = arith.addi %i, %c8 : index
      %i2 = arith.addi %i, %c16 : index
      %i3 = arith.addi %i, %c24 : index
      %x0 = vector.load %x[%i] : memref<?xf32>, vector<8xf32>
      %x1 = vector.load %x[%i1] : memref<?xf32>, vector<8xf32>
      %x2 = vector.load %x[%i2] : memref<?xf32>, vector<8xf32>
      %x3 = vector.load %x[%i3] : memref<?xf32>, vector<8xf32>
      %y0 = vector.load %y[%i] : memref<?xf32>, vector<8xf32>
      %y1 = vector.load %y[%i1] : memref<?xf32>, vector<8xf32>
      %y2 = vector.load %y[%i2] : memref<?xf32>, vector<8xf32>
      %y3 = vector.load %y[%i3] : memref<?xf32>, vector<8xf32>
      %t0 = vector.fma %x0, %y0, %s0 : vector<8xf32>
      %t1 = vector.fma %x1, %y1, %s1 : vector<8xf32>
      %t2 = vector.fma %x2, %y2, %s2 : vector<8xf32>
      %t3 = vector.fma %x3, %y3, %s3 : vector<8xf32>
      scf.yield %t0, %t1, %t2, %t3
          : vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>
    }
    %s01 = arith.addf %sums#0, %sums#1 : vector<8xf32>
    %s23 = arith.addf %sums#2, %sums#3 : vector<8xf32>
    %all = arith.addf %s01, %s23 : vector<8xf32>
    %r = vector.reduction <add>, %all : vector<8xf32> into f32
    return %r : f32
  }

  // Sizes are multiples of eight.
  func.func @transpose_8x8(%x: memref<?x?xf32>, %y: memref<?x?xf32>)
      attributes {llvm.emit_c_interface} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c8 = arith.constant 8 : index
    %zero = arith.constant 0.0 : f32
    %rows = memref.dim %x, %c0 : memref<?x?xf32>
    %cols = memref.dim %x, %c1 : memref<?x?xf32>
    scf.for %i = %c0 to %rows step %c8 {
      scf.for %j = %c0 to %cols step %c8 {
        %tile = vector.transfer_read %x[%i, %j], %zero
            {in_bounds = [true, true]} : memref<?x?xf32>, vector<8x8xf32>
        %turned = vector.transpose %tile, [1, 0]
            : vector<8x8xf32> to vector<8x8xf32>
        vector.transfer_write %turned, %y[%j, %i] {in_bounds = [true, true]}
            : vector<8x8xf32>, memref<?x?xf32>
      }
    }
    return
  }

  // exp(x) near zero, by its first terms.
  func.func @polynomial(%x: memref<?xf32>, %y: memref<?xf32>)
      attributes {llvm.emit_c_interface} {
    %c0 = arith.constant 0 : index
    %c16 = arith.constant 16 : index
    %zero = arith.constant 0.0 : f32
    %a0 = arith.constant dense<1.0> : vector<16xf32>
    %a2 = arith.constant dense<0.5> : vector<16xf32>
    %a3 = arith.constant dense<0.166666672> : vector<16xf32>
    %a4 = arith.constant dense<0.0416666679> : vector<16xf32>
    %n = memref.dim %x, %c0 : memref<?xf32>
    scf.for %i = %c0 to %n step %c16 {
      %left = arith.subi %n, %i : index
      %mask = vector.create_mask %left : vector<16xi1>
      %v = vector.transfer_read %x[%i], %zero, %mask {in_bounds = [true]}
          : memref<?xf32>, vector<16xf32>
      %p3 = vector.fma %a4, %v, %a3 : vector<16xf32>
      %p2 = vector.fma %p3, %v, %a2 : vector<16xf32>
      %p1 = vector.fma %p2, %v, %a0 : vector<16xf32>
      %p0 = vector.fma %p1, %v, %a0 : vector<16xf32>
      vector.transfer_write %p0, %y[%i], %mask {in_bounds = [true]}
          : vector<16xf32>, memref<?xf32>
    }
    return
  }
}
