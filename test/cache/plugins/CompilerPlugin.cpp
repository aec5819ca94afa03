//===- CompilerPlugin.cpp - Code that names MLIR --------------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compiled several times, each with another number: stands for versions of a
// plugin. Its name is what matters.
//
//===----------------------------------------------------------------------===//

extern "C" int mlirTestPluginNumber() { return CTXPOOL_TEST_NUMBER; }

#ifdef CTXPOOL_TEST_CALLS_LIBRARY
extern "C" int plainLibraryNumber();
extern "C" int callPlainLibrary() { return plainLibraryNumber(); }
#endif
