// PIPELINE: builtin.module(func.func(affine-loop-fusion{maximal=true},affine-loop-tile{tile-size=32},affine-loop-unroll{unroll-factor=4 unroll-up-to-factor=true},affine-loop-invariant-code-motion,affine-scalrep,canonicalize,cse,promote-buffers-to-stack),lower-affine,canonicalize,cse,convert-scf-to-cf,expand-strided-metadata,lower-affine,convert-arith-to-llvm,finalize-memref-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,reconcile-unrealized-casts)
//
// Stencils, where the polyhedral passes have something to say:
//   @jacobi_2d      five points, repeated, between two grids
//   @blur_3x3       separable blur: producer and consumer that should fuse
//   @laplace_3d     seven points, with the border set by an affine condition
// Every subscript is affine in the loop variables, so dependences are exact.

#interior = affine_set<(d0, d1, d2) : (d0 - 1 >= 0, 30 - d0 >= 0,
                                       d1 - 1 >= 0, 30 - d1 >= 0,
                                       d2 - 1 >= 0, 30 - d2 >= 0)>

module @stencil {
  // One step of the heat equation on the inner 62 x 62 points.
  func.func private @jacobi_step(%from: memref<64x64xf64>,
                                 %to: memref<64x64xf64>) {
    %fifth = arith.constant 0.2 : f64
    affine.for %i = 1 to 63 {
      affine.for %j = 1 to 63 {
        %centre = affine.load %from[%i, %j] : memref<64x64xf64>
        %north = affine.load %from[%i - 1, %j] : memref<64x64xf64>
        %south = affine.load %from[%i + 1, %j] : memref<64x64xf64>
        %west = affine.load %from[%i, %j - 1] : memref<64x64xf64>
        %east = affine.load %from[%i, %j + 1] : memref<64x64xf64>
        %ns = arith.addf %north, %south : f64
        %we = arith.addf %west, %east : f64
        %ring = arith.addf %ns, %we : f64
        %sum = arith.addf %ring, %centre : f64
        %mean = arith.mulf %sum, %fifth : f64
        affine.store %mean, %to[%i, %j] : memref<64x64xf64>
      }
    }
    return
  }

  // Two steps an iteration, there and back, so that the answer is in %grid.
  func.func @jacobi_2d(%double_steps: index, %grid: memref<64x64xf64>)
      attributes {llvm.emit_c_interface} {
    %scratch = memref.alloca() : memref<64x64xf64>
    affine.for %i = 0 to 64 {
      affine.for %j = 0 to 64 {
        %v = affine.load %grid[%i, %j] : memref<64x64xf64>
        affine.store %v, %scratch[%i, %j] : memref<64x64xf64>
      }
    }
    affine.for %t = 0 to %double_steps {
      func.call @jacobi_step(%grid, %scratch)
          : (memref<64x64xf64>, memref<64x64xf64>) -> ()
      func.call @jacobi_step(%scratch, %grid)
          : (memref<64x64xf64>, memref<64x64xf64>) -> ()
    }
    return
  }

  func.func @blur_3x3(%image: memref<66x66xf32>, %blurred: memref<64x64xf32>)
      attributes {llvm.emit_c_interface} {
    %quarter = arith.constant 0.25 : f32
    %half = arith.constant 0.5 : f32
    %rows = memref.alloca() : memref<66x64xf32>
    affine.for %i = 0 to 66 {
      affine.for %j = 0 to 64 {
        %a = affine.load %image[%i, %j] : memref<66x66xf32>
        %b = affine.load %image[%i, %j + 1] : memref<66x66xf32>
        %c = affine.load %image[%i, %j + 2] : memref<66x66xf32>
        %ac = arith.addf %a, %c : f32
        %sides = arith.mulf %ac, %quarter : f32
        %mid = arith.mulf %b, %half : f32
        %r = arith.addf %sides, %mid : f32
        affine.store %r, %rows[%i, %j] : memref<66x64xf32>
      }
    }
    affine.for %i = 0 to 64 {
      affine.for %j = 0 to 64 {
        %a = affine.load %rows[%i, %j] : memref<66x64xf32>
        %b = affine.load %rows[%i + 1, %j] : memref<66x64xf32>
        %c = affine.load %rows[%i + 2, %j] : memref<66x64xf32>
        %ac = arith.addf %a, %c : f32
        %sides = arith.mulf %ac, %quarter : f32
        %mid = arith.mulf %b, %half : f32
        %r = arith.addf %sides, %mid : f32
        affine.store %r, %blurred[%i, %j] : memref<64x64xf32>
      }
    }
    return
  }

  func.func @laplace_3d(%u: memref<32x32x32xf64>, %lap: memref<32x32x32xf64>)
      attributes {llvm.emit_c_interface} {
    %zero = arith.constant 0.0 : f64
    %minus_six = arith.constant -6.0 : f64
    affine.parallel (%i, %j, %k) = (0, 0, 0) to (32, 32, 32) {
      affine.if #interior(%i, %j, %k) {
        %c = affine.load %u[%i, %j, %k] : memref<32x32x32xf64>
        %x0 = affine.load %u[%i - 1, %j, %k] : memref<32x32x32xf64>
        %x1 = affine.load %u[%i + 1, %j, %k] : memref<32x32x32xf64>
        %y0 = affine.load %u[%i, %j - 1, %k] : memref<32x32x32xf64>
        %y1 = affine.load %u[%i, %j + 1, %k] : memref<32x32x32xf64>
        %z0 = affine.load %u[%i, %j, %k - 1] : memref<32x32x32xf64>
        %z1 = affine.load %u[%i, %j, %k + 1] : memref<32x32x32xf64>
        %x = arith.addf %x0, %x1 : f64
        %y = arith.addf %y0, %y1 : f64
        %z = arith.addf %z0, %z1 : f64
        %xy = arith.addf %x, %y : f64
        %xyz = arith.addf %xy, %z : f64
        %six_c = arith.mulf %c, %minus_six : f64
        %d = arith.addf %xyz, %six_c : f64
        affine.store %d, %lap[%i, %j, %k] : memref<32x32x32xf64>
      } else {
        affine.store %zero, %lap[%i, %j, %k] : memref<32x32x32xf64>
      }
    }
    return
  }
}
