//===- EncoderTest.cpp - What the codec keeps and refuses -----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/codec/Encoder.h"

#include "context_pool/Equivalence.h"
#include "context_pool/Fingerprint.h"
#include "context_pool/ModuleTransfer.h"
#include "context_pool/codec/RecordReader.h"
#include "context_pool/codec/SinkWriter.h"
#include "test/support/StatusMatchers.h"
#include "test/support/TestContexts.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinDialect.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "mlir/Parser/Parser.h"

using namespace mlir;
using namespace ctxpool;
using namespace ctxpool::test;

namespace {

/// The storage of an attribute that holds another and shows it to nobody.
struct HolderStorage : AttributeStorage {
  using KeyTy = Attribute;
  explicit HolderStorage(Attribute part) : held(part) {}
  bool operator==(const KeyTy &key) const { return key == held; }
  static HolderStorage *construct(AttributeStorageAllocator &allocator,
                                  const KeyTy &key) {
    return new (allocator.allocate<HolderStorage>()) HolderStorage(key);
  }
  Attribute held;
};

/// Prints what it holds through the printer.
class PoliteAttr
    : public Attribute::AttrBase<PoliteAttr, Attribute, HolderStorage> {
public:
  using Base::Base;
  static constexpr llvm::StringLiteral name = "holder.polite";
  static PoliteAttr of(Attribute held) {
    return Base::get(held.getContext(), held);
  }
  Attribute getHeld() const { return getImpl()->held; }
};

/// Prints what it holds as text of its own making.
class RudeAttr
    : public Attribute::AttrBase<RudeAttr, Attribute, HolderStorage> {
public:
  using Base::Base;
  static constexpr llvm::StringLiteral name = "holder.rude";
  static RudeAttr of(Attribute held) {
    return Base::get(held.getContext(), held);
  }
  Attribute getHeld() const { return getImpl()->held; }
};

struct NumberStorage : AttributeStorage {
  using KeyTy = double;
  explicit NumberStorage(double number) : value(number) {}
  bool operator==(const KeyTy &key) const {
    return std::memcmp(&key, &value, sizeof(key)) == 0;
  }
  static llvm::hash_code hashKey(const KeyTy &key) {
    return llvm::hash_value(llvm::bit_cast<uint64_t>(key));
  }
  static NumberStorage *construct(AttributeStorageAllocator &allocator,
                                  const KeyTy &key) {
    return new (allocator.allocate<NumberStorage>()) NumberStorage(key);
  }
  double value;
};

class NumberAttr
    : public Attribute::AttrBase<NumberAttr, Attribute, NumberStorage> {
public:
  using Base::Base;
  static constexpr llvm::StringLiteral name = "holder.number";
  static NumberAttr of(MLIRContext &context, double value) {
    return Base::get(&context, value);
  }
  double getValue() const { return getImpl()->value; }
};

class HolderDialect : public Dialect {
public:
  explicit HolderDialect(MLIRContext *owner)
      : Dialect(getDialectNamespace(), owner, TypeID::get<HolderDialect>()) {
    addAttributes<PoliteAttr, RudeAttr, NumberAttr>();
  }
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(HolderDialect)
  static constexpr llvm::StringLiteral getDialectNamespace() {
    return llvm::StringLiteral("holder");
  }

  void printAttribute(Attribute attribute,
                      DialectAsmPrinter &printer) const override {
    if (auto polite = dyn_cast<PoliteAttr>(attribute))
      printer << "polite<" << polite.getHeld() << ">";
    else if (auto rude = dyn_cast<RudeAttr>(attribute))
      printer.getStream() << "rude<" << rude.getHeld() << ">";
    else
      printer << "number<" << cast<NumberAttr>(attribute).getValue() << ">";
  }
};

class EncoderTest : public testing::Test {
protected:
  EncoderTest() {
    auto made = fullTemplate()->clone();
    EXPECT_TRUE(made.ok());
    context = *std::move(made);
    context->allowUnregisteredDialects();
    context->loadDialect<HolderDialect>();
  }

  Attribute attribute(llvm::StringRef text) {
    Attribute parsed = parseAttribute(text, context.get());
    EXPECT_TRUE(parsed) << text.str();
    return parsed;
  }

  codec::Record encoded(Attribute value) {
    codec::Record record;
    EXPECT_THAT(codec::encode(value, record), IsOk());
    return record;
  }

  Fingerprint digest(ArrayRef<Attribute> values) {
    absl::StatusOr<Fingerprint> result = digestOrError(values);
    EXPECT_THAT(result, IsOk());
    return result.ok() ? *result : Fingerprint();
  }

  absl::StatusOr<Fingerprint> digestOrError(ArrayRef<Attribute> values) {
    OperationState state(UnknownLoc::get(context.get()), "t.a");
    state.addAttribute("k", ArrayAttr::get(context.get(), values));
    Operation *op = Operation::create(state);
    absl::StatusOr<Fingerprint> result = fingerprint(op);
    absl::Status compared = checkEquivalence(op, op);
    EXPECT_EQ(compared.code(), result.status().code());
    op->destroy();
    return result;
  }

  std::unique_ptr<MLIRContext> context;
};

TEST_F(EncoderTest, WhatAPrinterIsGivenIsAReference) {
  Attribute distinct = DistinctAttr::create(attribute("1 : i8"));
  codec::Record record = encoded(PoliteAttr::of(distinct));
  bool found = false;
  for (codec::Reference reference : record.references)
    found |= reference.pointer == distinct.getAsOpaquePointer();
  EXPECT_TRUE(found);

  Attribute other = DistinctAttr::create(attribute("1 : i8"));
  EXPECT_EQ(digest({distinct, PoliteAttr::of(distinct)}),
            digest({other, PoliteAttr::of(other)}));
  EXPECT_NE(digest({distinct, PoliteAttr::of(distinct)}),
            digest({distinct, PoliteAttr::of(other)}));
}

TEST_F(EncoderTest, DistinctThatIsPrintedAsTextIsRefusedByName) {
  Attribute distinct = DistinctAttr::create(attribute("1 : i8"));
  codec::Record record;
  EXPECT_THAT(codec::encode(RudeAttr::of(distinct), record),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "#holder.rude<distinct[0]<1 : i8>>"));
  EXPECT_THAT(digestOrError({RudeAttr::of(distinct)}),
              StatusIs(absl::StatusCode::kFailedPrecondition, "#holder.rude<"));
  // Deep inside as well, and a Fingerprinter recovers from it.
  Attribute nested = attribute("1 : i8");
  nested = ArrayAttr::get(context.get(), {nested, RudeAttr::of(distinct)});
  EXPECT_THAT(digestOrError({nested}),
              StatusIs(absl::StatusCode::kFailedPrecondition, "#holder.rude<"));
}

TEST_F(EncoderTest, ResourceThatIsPrintedAsTextIsRefusedByName) {
  auto handle =
      DenseResourceElementsHandle::getManagerInterface(context.get())
          .insert("key", HeapAsmResourceBlob::allocateAndCopyInferAlign(
                             ArrayRef<int32_t>{1, 2}));
  Attribute resource = DenseResourceElementsAttr::get(
      RankedTensorType::get({2}, IntegerType::get(context.get(), 32)), handle);
  codec::Record record;
  EXPECT_THAT(codec::encode(RudeAttr::of(resource), record),
              StatusIs(absl::StatusCode::kFailedPrecondition, "a resource"));
  EXPECT_THAT(codec::encode(PoliteAttr::of(resource), record), IsOk());
}

TEST_F(EncoderTest, WordInAStringIsNoDistinctAttribute) {
  codec::Record record;
  EXPECT_THAT(
      codec::encode(RudeAttr::of(attribute("\"a distinct[0]<> b\"")), record),
      IsOk());
}

TEST_F(EncoderTest, TextOfItsOwnMakingStillCounts) {
  EXPECT_NE(digest({RudeAttr::of(attribute("1 : i8"))}),
            digest({RudeAttr::of(attribute("2 : i8"))}));
  EXPECT_NE(digest({RudeAttr::of(attribute("1 : i8"))}),
            digest({PoliteAttr::of(attribute("1 : i8"))}));
}

TEST_F(EncoderTest, PrintedNumbersCountByTheirBits) {
  EXPECT_NE(digest({NumberAttr::of(*context, 0.1)}),
            digest({NumberAttr::of(*context, 0.1 + 1e-17 * 3)}));
  EXPECT_NE(digest({NumberAttr::of(*context, 0.0)}),
            digest({NumberAttr::of(*context, -0.0)}));
  EXPECT_NE(digest({NumberAttr::of(
                *context, llvm::bit_cast<double>(0x7FF8000000000001ull))}),
            digest({NumberAttr::of(
                *context, llvm::bit_cast<double>(0x7FF8000000000002ull))}));
}

TEST_F(EncoderTest, EncodingDoesNotRecurse) {
  Attribute inner = attribute("[[[[1 : i8]]]]");
  codec::Record record = encoded(inner);
  ASSERT_EQ(record.references.size(), 1u);
  EXPECT_EQ(record.references[0].pointer,
            cast<ArrayAttr>(inner)[0].getAsOpaquePointer());
}

TEST_F(EncoderTest, LargeDataIsReferredToAndNotCopied) {
  std::vector<int32_t> values(1 << 16);
  for (size_t i = 0; i != values.size(); ++i)
    values[i] = i;
  auto dense = DenseIntElementsAttr::get(
      RankedTensorType::get({int64_t(values.size())},
                            IntegerType::get(context.get(), 32)),
      ArrayRef<int32_t>(values));
  codec::Record record = encoded(dense);
  EXPECT_LT(record.bytes.size(), 100u);
  EXPECT_EQ(record.references.back().pointer, dense.getRawData().data());
}

TEST_F(EncoderTest, OpenBitsOfNarrowElementsDoNotCount) {
  // What a buffer has beside its values is no value.
  auto type = RankedTensorType::get({3}, IntegerType::get(context.get(), 4));
  const char clean[] = {0x01, 0x0F, 0x07}, dirty[] = {0x71, char(0xFF), 0x07};
  auto lhs = DenseElementsAttr::getFromRawBuffer(type, clean);
  auto rhs = DenseElementsAttr::getFromRawBuffer(type, dirty);
  EXPECT_EQ(digest({lhs}), digest({rhs}));

  auto bits = RankedTensorType::get({3}, IntegerType::get(context.get(), 1));
  const char cleanBits[] = {0x05}, dirtyBits[] = {char(0xFD)};
  auto lhsBits = DenseElementsAttr::getFromRawBuffer(bits, cleanBits);
  auto rhsBits = DenseElementsAttr::getFromRawBuffer(bits, dirtyBits);
  // A buffer of one byte may be a splat as well: then both are, alike.
  EXPECT_EQ(digest({lhsBits}) == digest({rhsBits}),
            llvm::equal(lhsBits.getValues<bool>(), rhsBits.getValues<bool>()));
}

TEST_F(EncoderTest, NothingIsInterned) {
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(R"(
    module attributes {
        t.a = #dlti.map<"k" = distinct[0]<1 : i8>>, t.b = [1 : i8, "s", 2.0 : f32],
        t.c = !quant.uniform<i8:f32, 0.1:3>, t.e = dense<[1, 2]> : tensor<2xi32>,
        t.d = loc(callsite("a" at "b":1:2))} {
      func.func @f(%a: f32, %m: memref<4xf32, strided<[2]>>) {
        %0 = arith.addf %a, %a fastmath<fast> : f32
        %n = arith.constant 1 : index
        %1 = memref.alloc(%n) : memref<?xf32>
        %2 = llvm.mlir.undef : !llvm.struct<"n", (i32, ptr)>
        "t.u"() <{p = [@f, "q"]}> : () -> ()
        return } })",
                                                             context.get());
  OwningOpRef<ModuleOp> other = module->clone();
  ASSERT_TRUE(module);
  (*other)->setAttr("t.b", UnitAttr::get(context.get()));

  // Attributes of a kind lie one behind the other in memory, so that one that
  // was made in between shows in the distance of two others.
  int64_t next = 1 << 20;
  Builder builder(context.get());
  using Places = std::vector<uintptr_t>;
  auto mark = [&] {
    ++next;
    Places places;
    auto note = [&](const void *pointer) {
      places.push_back(reinterpret_cast<uintptr_t>(pointer));
    };
    auto integer = builder.getI64IntegerAttr(next);
    auto string = builder.getStringAttr("mark" + Twine(next));
    note(integer.getAsOpaquePointer());
    note(string.getAsOpaquePointer());
    note(builder.getArrayAttr({integer}).getAsOpaquePointer());
    note(builder.getDictionaryAttr({builder.getNamedAttr("m", integer)})
             .getAsOpaquePointer());
    note(builder.getDenseI32ArrayAttr({int32_t(next)}).getAsOpaquePointer());
    note(builder.getF32FloatAttr(float(next)).getAsOpaquePointer());
    note(SymbolRefAttr::get(string).getAsOpaquePointer());
    note(TypeAttr::get(builder.getIntegerType(next & 0xFFFFF))
             .getAsOpaquePointer());
    note(builder.getIntegerType(1000 + (next & 0xFFFF)).getAsOpaquePointer());
    note(TupleType::get(context.get(),
                        {builder.getIntegerType(2000 + (next & 0xFFFF))})
             .getAsOpaquePointer());
    return places;
  };
  auto distances = [](const Places &from, const Places &to) {
    std::vector<intptr_t> result;
    for (size_t i = 0; i != from.size(); ++i)
      result.push_back(to[i] - from[i]);
    return result;
  };
  std::vector<std::function<void()>> works = {
      [&] { EXPECT_THAT(fingerprint(*module), IsOk()); },
      [&] {
        StructuralOptions options;
        options.includeLocations = true;
        options.symbols = StructuralOptions::Symbols::NormalizeAll;
        EXPECT_THAT(fingerprint(*module, options), IsOk());
      },
      [&] { EXPECT_FALSE(isEquivalent(*module, *other)); },
      [&] { EXPECT_FALSE(checkEquivalence(*module, *other).ok()); },
  };
  for (const auto &work : works) {
    // The end of a slab of memory breaks the pattern: several tries.
    bool clean = false;
    for (int attempt = 0; attempt != 20 && !clean; ++attempt) {
      Places first = mark(), second = mark();
      work();
      Places third = mark();
      clean = distances(first, second) == distances(second, third);
    }
    EXPECT_TRUE(clean) << "work " << &work - works.data();
  }
  // The method sees it where something is interned.
  bool clean = false;
  for (int attempt = 0; attempt != 20 && !clean; ++attempt) {
    Places first = mark(), second = mark();
    builder.getStringAttr("extra" + Twine(attempt));
    Places third = mark();
    clean = distances(first, second) == distances(second, third);
  }
  EXPECT_FALSE(clean);
}

/// The properties of every operation that has some survive a record.
TEST_F(EncoderTest, PropertiesAreReadBack) {
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(R"(
    func.func @f(%a: f32, %b: i32, %p: !llvm.ptr, %n: index, %c: i1) {
      %0 = arith.addf %a, %a fastmath<fast> : f32
      %1 = arith.cmpi slt, %b, %b : i32
      %2 = memref.alloc(%n) : memref<?xf32>
      %3 = llvm.getelementptr inbounds %p[%b, 3] : (!llvm.ptr, i32) -> !llvm.ptr, !llvm.array<4 x i32>
      %4 = affine.linearize_index disjoint [%n, %n] by (4, 5) : index
      %5 = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
      cf.cond_br %c, ^a(%b : i32), ^a(%b : i32)
    ^a(%x: i32):
      return
    })",
                                                             context.get());
  ASSERT_TRUE(module);
  unsigned checked = 0;
  module->walk([&](Operation *op) {
    auto interface = dyn_cast<BytecodeOpInterface>(op);
    if (!interface || op->getPropertiesStorageSize() == 0)
      return;
    codec::Record record;
    codec::RecordSink sink(record);
    codec::SinkWriter<codec::RecordSink> writer(sink);
    interface.writeProperties(writer);

    codec::RecordReader reader(record, record.references, record.handles,
                               op->getLoc());
    OperationState state(op->getLoc(), op->getName());
    ASSERT_TRUE(succeeded(interface.readProperties(reader, state)));
    EXPECT_TRUE(reader.isAtEnd());
    EXPECT_TRUE(op->getName().compareOpProperties(op->getPropertiesStorage(),
                                                  state.getRawProperties()))
        << op->getName().getStringRef().str();
    ++checked;
  });
  EXPECT_GE(checked, 8u);
}

TEST_F(EncoderTest, TypesOfADialectAreReadBack) {
  for (llvm::StringRef text :
       {"!quant.uniform<i8:f32, 0.1:3>",
        "!quant.uniform<u8<1:200>:f32:1, {0.1:3, 0.7}>",
        "!quant.any<i8<-8:7>:f32>", "!quant.calibrated<f32<-0.998:1.2321>>"}) {
    Type type = cast<TypeAttr>(attribute(text)).getValue();
    codec::Record record;
    ASSERT_THAT(codec::encode(type, record), IsOk());
    ASSERT_EQ(record.bytes[0], uint8_t(codec::Tag::DialectType));
    codec::RecordReader reader(record, record.references, record.handles,
                               UnknownLoc::get(context.get()));
    uint8_t tag;
    StringRef dialect;
    ASSERT_TRUE(succeeded(reader.readByte(tag)));
    ASSERT_TRUE(succeeded(reader.readString(dialect)));
    EXPECT_EQ(dialect, "quant");
    auto *interface =
        type.getDialect().getRegisteredInterface<BytecodeDialectInterface>();
    ASSERT_TRUE(interface);
    EXPECT_EQ(interface->readType(reader), type) << text.str();
    EXPECT_TRUE(reader.isAtEnd());
  }
}

TEST_F(EncoderTest, ShortRecordsFailToRead) {
  codec::Record record;
  record.writeVarInt(300);
  record.writeString("text");
  std::string messages;
  ScopedDiagnosticHandler handler(context.get(), [&](Diagnostic &diagnostic) {
    messages += diagnostic.str();
  });
  for (size_t size = 0; size != record.bytes.size(); ++size) {
    codec::Record cut;
    cut.writeRaw(record.bytes.data(), size);
    codec::RecordReader reader(cut, {}, {}, UnknownLoc::get(context.get()));
    uint64_t number;
    StringRef text;
    EXPECT_TRUE(failed(reader.readVarInt(number)) ||
                failed(reader.readString(text)));
  }
  EXPECT_NE(messages.find("no more bytes"), std::string::npos);
  codec::RecordReader reader(record, {}, {}, UnknownLoc::get(context.get()));
  Attribute none;
  EXPECT_TRUE(failed(reader.readAttribute(none)));
}

/// A type that gets the attributes that it holds after its creation.
struct LateStorage : TypeStorage {
  using KeyTy = StringRef;
  explicit LateStorage(StringRef key) : id(key) {}
  bool operator==(const KeyTy &key) const { return key == id; }
  static LateStorage *construct(TypeStorageAllocator &allocator,
                                const KeyTy &key) {
    return new (allocator.allocate<LateStorage>())
        LateStorage(allocator.copyInto(key));
  }
  LogicalResult mutate(TypeStorageAllocator &, Attribute newBody) {
    if (body && body != newBody)
      return failure();
    body = newBody;
    return success();
  }
  StringRef id;
  Attribute body;
};

class LateType
    : public Type::TypeBase<LateType, Type, LateStorage, TypeTrait::IsMutable> {
public:
  using Base::Base;
  static constexpr llvm::StringLiteral name = "late.type";
  static LateType of(MLIRContext *context, StringRef id, Attribute body) {
    LateType type = Base::get(context, id);
    EXPECT_TRUE(succeeded(type.Base::mutate(body)));
    return type;
  }
  StringRef getId() const { return getImpl()->id; }
  Attribute getBody() const { return getImpl()->body; }
};

/// Its parser makes 7 of every 8.
class LateDialect : public Dialect {
public:
  explicit LateDialect(MLIRContext *owner)
      : Dialect(getDialectNamespace(), owner, TypeID::get<LateDialect>()) {
    addTypes<LateType>();
  }
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(LateDialect)
  static constexpr llvm::StringLiteral getDialectNamespace() {
    return llvm::StringLiteral("late");
  }
  void printType(Type type, DialectAsmPrinter &printer) const override {
    auto late = cast<LateType>(type);
    printer << late.getId() << "<" << late.getBody() << ">";
  }
  Type parseType(DialectAsmParser &parser) const override {
    StringRef name;
    Attribute body;
    if (parser.parseKeyword(&name) || parser.parseLess() ||
        parser.parseAttribute(body) || parser.parseGreater())
      return {};
    auto number = dyn_cast<IntegerAttr>(body);
    if (number && number.getValue() == 8)
      body = IntegerAttr::get(number.getType(), 7);
    return LateType::of(getContext(), name, body);
  }
};

TEST_F(EncoderTest, MutableTypeThatItsTextLosesIsNotCopied) {
  auto made = fullTemplate()->clone();
  ASSERT_THAT(made, IsOk());
  MLIRContext &destination = **made;
  context->loadDialect<LateDialect>();
  destination.loadDialect<LateDialect>();
  auto copy = [&](StringRef name, Attribute body) {
    OwningOpRef<ModuleOp> module =
        ModuleOp::create(UnknownLoc::get(context.get()));
    module->getOperation()->setAttr(
        "t.t", TypeAttr::get(LateType::of(context.get(), name, body)));
    return cloneInto(*module, destination).status();
  };

  EXPECT_THAT(copy("whole", attribute("1 : i8")), IsOk());
  EXPECT_THAT(
      copy("other", attribute("8 : i8")),
      StatusIs(absl::StatusCode::kFailedPrecondition, "!late.other<8 : i8>"));
  EXPECT_THAT(copy("deep", attribute("[1 : i8, \"a\"]")), IsOk());
  EXPECT_THAT(copy("distinct", attribute("[distinct[0]<unit>]")),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "loses a distinct attribute"));
}

TEST_F(EncoderTest, DescriptionsAreShort) {
  std::string text = codec::describe(
      StringAttr::get(context.get(), std::string(1000, 'x')), 50);
  EXPECT_EQ(text.size(), 53u);
  EXPECT_EQ(codec::describe(Attribute()), "none");
  EXPECT_EQ(codec::describe(attribute("1 : i8")), "1 : i8");
}

} // namespace
