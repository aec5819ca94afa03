//===- CircuitTest.cpp - When to leave a failing server alone -------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/cache/Circuit.h"

#include "gtest/gtest.h"

using namespace ctxpool;
using namespace ctxpool::detail;
using Answer = Circuit::Answer;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

class CircuitTest : public testing::Test {
protected:
  CircuitOptions options() {
    CircuitOptions options;
    options.failures = 3;
    options.patience = milliseconds(50);
    options.firstRest = seconds(1);
    options.longestRest = seconds(5);
    options.now = [this] { return now; };
    return options;
  }
  void fail(Circuit &circuit) { circuit.failed(milliseconds(0)); }

  Circuit::Clock::time_point now;
};

TEST_F(CircuitTest, AskedAtFirst) {
  Circuit circuit(options());

  EXPECT_EQ(circuit.ask(), Answer::Go);
}

TEST_F(CircuitTest, RestsAfterFailuresInARow) {
  Circuit circuit(options());
  fail(circuit);
  fail(circuit);
  EXPECT_EQ(circuit.ask(), Answer::Go);

  fail(circuit);

  EXPECT_EQ(circuit.ask(), Answer::Rest);
  EXPECT_TRUE(circuit.getState().resting);
  EXPECT_EQ(circuit.getState().failures, 3u);
  EXPECT_EQ(circuit.getState().rests, 1u);
  EXPECT_EQ(circuit.getState().restLeft, seconds(1));
}

TEST_F(CircuitTest, ASuccessEndsTheRow) {
  Circuit circuit(options());
  fail(circuit);
  fail(circuit);
  circuit.succeeded();
  fail(circuit);
  fail(circuit);

  EXPECT_EQ(circuit.ask(), Answer::Go);
}

TEST_F(CircuitTest, OneFailureThatCostsMuchIsEnough) {
  Circuit circuit(options());

  circuit.failed(milliseconds(50));

  EXPECT_EQ(circuit.ask(), Answer::Rest);
}

TEST_F(CircuitTest, CostsOfARowAddUp) {
  Circuit circuit(options());
  circuit.failed(milliseconds(30));
  EXPECT_EQ(circuit.ask(), Answer::Go);

  circuit.failed(milliseconds(30));

  EXPECT_EQ(circuit.ask(), Answer::Rest);
}

TEST_F(CircuitTest, OneCallerProbesAfterTheRest) {
  Circuit circuit(options());
  circuit.failed(seconds(1));
  now += milliseconds(999);
  EXPECT_EQ(circuit.ask(), Answer::Rest);

  now += milliseconds(1);

  EXPECT_EQ(circuit.ask(), Answer::Probe);
  EXPECT_EQ(circuit.ask(), Answer::Rest);
  now += seconds(100);
  EXPECT_EQ(circuit.ask(), Answer::Rest) << "one probe is under way";
}

TEST_F(CircuitTest, RestsAreTwiceAsLongEachUpToTheLongest) {
  Circuit circuit(options());
  circuit.failed(seconds(1));
  for (seconds rest :
       {seconds(1), seconds(2), seconds(4), seconds(5), seconds(5)}) {
    EXPECT_EQ(circuit.getState().restLeft, rest);
    now += rest;
    ASSERT_EQ(circuit.ask(), Answer::Probe);
    circuit.probed(false);
  }
  EXPECT_EQ(circuit.getState().rests, 6u);
}

TEST_F(CircuitTest, AfterASuccessfulProbeTheServerIsAsked) {
  Circuit circuit(options());
  circuit.failed(seconds(1));
  now += seconds(1);
  ASSERT_EQ(circuit.ask(), Answer::Probe);

  circuit.probed(true);

  EXPECT_EQ(circuit.ask(), Answer::Go);
  EXPECT_FALSE(circuit.getState().resting);
}

TEST_F(CircuitTest, OnProbationOneFailureIsEnoughAndTheRestIsLonger) {
  Circuit circuit(options());
  circuit.failed(seconds(1));
  now += seconds(1);
  ASSERT_EQ(circuit.ask(), Answer::Probe);
  circuit.probed(true);

  fail(circuit);

  EXPECT_EQ(circuit.ask(), Answer::Rest);
  EXPECT_EQ(circuit.getState().restLeft, seconds(2));
}

TEST_F(CircuitTest, ASuccessfulCallMakesTheNextRestShortAgain) {
  Circuit circuit(options());
  circuit.failed(seconds(1));
  now += seconds(1);
  ASSERT_EQ(circuit.ask(), Answer::Probe);
  circuit.probed(true);
  circuit.succeeded();

  fail(circuit);
  EXPECT_EQ(circuit.ask(), Answer::Go);
  circuit.failed(seconds(1));

  EXPECT_EQ(circuit.getState().restLeft, seconds(1));
}

TEST_F(CircuitTest, FailuresOfCallsUnderWayDoNotMakeTheRestLonger) {
  Circuit circuit(options());
  circuit.failed(seconds(1));
  now += milliseconds(500);

  circuit.failed(seconds(1));

  EXPECT_EQ(circuit.getState().restLeft, milliseconds(500));
  EXPECT_EQ(circuit.getState().rests, 1u);
}

TEST_F(CircuitTest, ASuccessOfACallUnderWayEndsTheRest) {
  Circuit circuit(options());
  circuit.failed(seconds(1));

  circuit.succeeded();

  EXPECT_EQ(circuit.ask(), Answer::Go);
}

} // namespace
