// PIPELINE: builtin.module(canonicalize,cse,convert-scf-to-cf,convert-to-llvm,reconcile-unrealized-casts)
//
// y := alpha * x + y on the first n elements. This is the request a JIT sees
// most often and for which it is worst prepared: about ten operations, so that
// nearly all the time goes into making a context and loading dialects.

func.func @saxpy(%n: index, %alpha: f32, %x: memref<?xf32>, %y: memref<?xf32>)
    attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %xi = memref.load %x[%i] : memref<?xf32>
    %yi = memref.load %y[%i] : memref<?xf32>
    %r = math.fma %alpha, %xi, %yi : f32
    memref.store %r, %y[%i] : memref<?xf32>
  }
  return
}
