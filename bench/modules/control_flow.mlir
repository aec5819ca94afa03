// PIPELINE: builtin.module(canonicalize{region-simplify=aggressive},sccp,cse,symbol-dce,convert-cf-to-llvm,convert-arith-to-llvm,convert-index-to-llvm,finalize-memref-to-llvm,convert-func-to-llvm,reconcile-unrealized-casts)
//
// Branches without structure, as a language front end leaves them:
//   @gcd            a loop of two values carried in block arguments
//   @lower_bound    binary search in a sorted table, guarded by an assertion
//   @sort           insertion sort, with a loop left from two places
//   @interpret      the dispatch loop of a small register machine, a switch
//                   over opcodes whose every case jumps back to the head
// Block arguments become phi nodes and critical edges abound.

module @control_flow {
  func.func @gcd(%a: i64, %b: i64) -> i64 attributes {llvm.emit_c_interface} {
    %zero = arith.constant 0 : i64
    cf.br ^head(%a, %b : i64, i64)
  ^head(%x: i64, %y: i64):
    %done = arith.cmpi eq, %y, %zero : i64
    cf.cond_br %done, ^exit(%x : i64), ^step
  ^step:
    %rest = arith.remui %x, %y : i64
    cf.br ^head(%y, %rest : i64, i64)
  ^exit(%result: i64):
    return %result : i64
  }

  // First place in the sorted table whose entry is not less than the key.
  func.func @lower_bound(%table: memref<?xi32>, %key: i32) -> index
      attributes {llvm.emit_c_interface} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %size = memref.dim %table, %c0 : memref<?xi32>
    %some = arith.cmpi ugt, %size, %c0 : index
    cf.assert %some, "lower_bound: the table is empty"
    cf.br ^head(%c0, %size : index, index)
  ^head(%low: index, %high: index):
    %open = arith.cmpi ult, %low, %high : index
    cf.cond_br %open, ^probe, ^exit
  ^probe:
    %span = arith.subi %high, %low : index
    %half = arith.shrui %span, %c1 : index
    %middle = arith.addi %low, %half : index
    %entry = memref.load %table[%middle] : memref<?xi32>
    %less = arith.cmpi slt, %entry, %key : i32
    cf.cond_br %less, ^right, ^head(%low, %middle : index, index)
  ^right:
    %next = arith.addi %middle, %c1 : index
    cf.br ^head(%next, %high : index, index)
  ^exit:
    return %low : index
  }

  func.func @sort(%keys: memref<?xi32>) attributes {llvm.emit_c_interface} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %size = memref.dim %keys, %c0 : memref<?xi32>
    cf.br ^outer(%c1 : index)
  ^outer(%i: index):
    %more = arith.cmpi ult, %i, %size : index
    cf.cond_br %more, ^take, ^exit
  ^take:
    %key = memref.load %keys[%i] : memref<?xi32>
    cf.br ^inner(%i : index)
  ^inner(%hole: index):
    %at_front = arith.cmpi eq, %hole, %c0 : index
    cf.cond_br %at_front, ^place, ^compare
  ^compare:
    %before = arith.subi %hole, %c1 : index
    %other = memref.load %keys[%before] : memref<?xi32>
    %larger = arith.cmpi sgt, %other, %key : i32
    cf.cond_br %larger, ^shift, ^place
  ^shift:
    memref.store %other, %keys[%hole] : memref<?xi32>
    cf.br ^inner(%before : index)
  ^place:
    memref.store %key, %keys[%hole] : memref<?xi32>
    %next = arith.addi %i, %c1 : index
    cf.br ^outer(%next : index)
  ^exit:
    return
  }

  // An instruction is a row of %code: opcode, destination, source, immediate.
  //   0  halt, and return the register named by destination
  //   1  destination = immediate
  //   2  destination += source
  //   3  destination *= source
  //   4  destination -= immediate
  //   5  if source is not zero, go to the instruction at immediate
  // Any other opcode ends the run with -1, and so does running out of fuel.
  func.func @interpret(%code: memref<?x4xi32>, %registers: memref<8xi32>,
                       %fuel: i32) -> i32 attributes {llvm.emit_c_interface} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c3 = arith.constant 3 : index
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %failure = arith.constant -1 : i32
    cf.br ^head(%c0, %fuel : index, i32)
  ^head(%pc: index, %left: i32):
    %exhausted = arith.cmpi eq, %left, %zero : i32
    cf.cond_br %exhausted, ^exit(%failure : i32), ^fetch
  ^fetch:
    %opcode = memref.load %code[%pc, %c0] : memref<?x4xi32>
    %to_i32 = memref.load %code[%pc, %c1] : memref<?x4xi32>
    %from_i32 = memref.load %code[%pc, %c2] : memref<?x4xi32>
    %immediate = memref.load %code[%pc, %c3] : memref<?x4xi32>
    %to = arith.index_cast %to_i32 : i32 to index
    %from = arith.index_cast %from_i32 : i32 to index
    %target = memref.load %registers[%to] : memref<8xi32>
    %source = memref.load %registers[%from] : memref<8xi32>
    %next_pc = arith.addi %pc, %c1 : index
    %next_left = arith.subi %left, %one : i32
    cf.switch %opcode : i32, [
      default: ^exit(%failure : i32),
      0: ^exit(%target : i32),
      1: ^write(%immediate : i32),
      2: ^add,
      3: ^multiply,
      4: ^subtract,
      5: ^jump
    ]
  ^add:
    %sum = arith.addi %target, %source : i32
    cf.br ^write(%sum : i32)
  ^multiply:
    %product = arith.muli %target, %source : i32
    cf.br ^write(%product : i32)
  ^subtract:
    %difference = arith.subi %target, %immediate : i32
    cf.br ^write(%difference : i32)
  ^jump:
    %taken = arith.cmpi ne, %source, %zero : i32
    %away = arith.index_cast %immediate : i32 to index
    cf.cond_br %taken, ^head(%away, %next_left : index, i32),
                       ^head(%next_pc, %next_left : index, i32)
  ^write(%value: i32):
    memref.store %value, %registers[%to] : memref<8xi32>
    cf.br ^head(%next_pc, %next_left : index, i32)
  ^exit(%result: i32):
    return %result : i32
  }
}
