//===- Circuit.cpp - When to leave a failing server alone -----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/cache/Circuit.h"

#include <algorithm>
#include <utility>

using namespace ctxpool;
using namespace ctxpool::detail;

Circuit::Circuit(CircuitOptions theOptions)
    : options(std::move(theOptions)), nextRest(options.firstRest) {}

Circuit::Answer Circuit::ask() {
  MutexLock lock(mutex);
  if (!resting)
    return Answer::Go;
  if (probing || options.now() < restEnd)
    return Answer::Rest;
  probing = true;
  return Answer::Probe;
}

void Circuit::succeeded() {
  MutexLock lock(mutex);
  resting = probation = false;
  failures = 0;
  cost = {};
  nextRest = options.firstRest;
}

void Circuit::failed(Clock::duration theCost) {
  MutexLock lock(mutex);
  ++failures;
  // Calls that were under way when the rest began say nothing new.
  if (resting)
    return;
  cost += theCost;
  if (probation || failures >= options.failures || cost >= options.patience)
    restLocked();
}

void Circuit::probed(bool success) {
  MutexLock lock(mutex);
  probing = false;
  // A call that was under way has found out already.
  if (!resting)
    return;
  if (!success) {
    ++failures;
    restLocked();
    return;
  }
  // A server can be well enough to be greeted, and not to work.
  resting = false;
  probation = true;
  cost = {};
}

void Circuit::restLocked() {
  resting = true;
  probation = false;
  cost = {};
  ++rests;
  restEnd = options.now() + nextRest;
  nextRest = std::min(2 * nextRest, options.longestRest);
}

Circuit::State Circuit::getState() const {
  MutexLock lock(mutex);
  State state;
  state.resting = resting;
  state.failures = failures;
  state.rests = rests;
  if (resting)
    state.restLeft = std::max(restEnd - options.now(), Clock::duration::zero());
  return state;
}
