//===- StatisticsTest.cpp - Figures from samples --------------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/Statistics.h"
#include "bench/TextTable.h"

#include "llvm/Support/raw_ostream.h"
#include "gtest/gtest.h"

#include <string>
#include <vector>

using namespace ctxpool::bench;

namespace {

TEST(PercentileTest, IsTheSmallestSampleThatSoManyDoNotExceed) {
  std::vector<double> samples;
  for (int i = 100; i >= 1; --i)
    samples.push_back(i);

  EXPECT_EQ(percentile(samples, 50), 50);
  EXPECT_EQ(percentile(samples, 90), 90);
  EXPECT_EQ(percentile(samples, 99), 99);
  EXPECT_EQ(percentile(samples, 100), 100);
  EXPECT_EQ(percentile(samples, 0), 1);
}

TEST(PercentileTest, IsAlwaysAMeasuredValue) {
  EXPECT_EQ(percentile({1, 1000}, 50), 1);
  EXPECT_EQ(percentile({1, 1000}, 51), 1000);
  EXPECT_EQ(percentile({7}, 99), 7);
}

TEST(PercentileTest, IsZeroWithoutSamples) { EXPECT_EQ(percentile({}, 50), 0); }

TEST(MedianTest, IsTheMiddleOrTheMeanOfTheTwoInTheMiddle) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(median({}), 0);
}

TEST(FormatNumberTest, SmallNumbersKeepTwoDigits) {
  for (auto [value, text] : {std::pair(1234.5, "1234"),
                             {12.34, "12.3"},
                             {1.234, "1.23"},
                             {0.123, "0.12"},
                             {0.0996, "0.10"},
                             {0.0949, "0.095"},
                             {0.0123, "0.012"},
                             {0.00123, "0.0012"},
                             {0.0000123, "0.000012"},
                             {0.0000000123, "0.000000"},
                             {0.0, "0.00"},
                             {-1.5, "-1.50"}})
    EXPECT_EQ(formatNumber(value), text);
}

TEST(TextTableTest, ColumnsAreAsWideAsTheirWidestCell) {
  TextTable table;
  table.addRow({"mode", "n"});
  table.addRule();
  table.addRow({"a", "1000"});
  std::string text;
  llvm::raw_string_ostream stream(text);
  table.print(stream);
  EXPECT_EQ(text, "mode     n\n"
                  "----------\n"
                  "a     1000\n");
}

} // namespace
