//===- OperationCopier.cpp - Operations in another context ----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/ir/OperationCopier.h"

#include "context_pool/support/Thread.h"

#include "absl/strings/str_cat.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace ctxpool::detail {
namespace {

/// Destroys IR from the inside, whatever refers to whatever in it: MLIR would
/// recurse as deep as regions nest.
void destroyFromInside(Operation *root) {
  std::vector<Operation *> operations{root};
  for (size_t i = 0; i != operations.size(); ++i) {
    Operation *op = operations[i];
    for (OpOperand &operand : op->getOpOperands())
      operand.drop();
    for (BlockOperand &successor : op->getBlockOperands())
      successor.drop();
    for (Region &region : op->getRegions())
      for (Block &block : region)
        for (Operation &nested : block)
          operations.push_back(&nested);
  }
  // Those around others are in front of them.
  for (Operation *op : llvm::reverse(operations)) {
    op->dropAllUses();
    op->erase();
  }
}

/// One copy of an operation. Operations are made before their regions are
/// filled, blocks before their operations, and all in the order of the source,
/// so that most operands exist when they are needed. Those that do not are a
/// placeholder until the end.
class OperationCopier {
public:
  OperationCopier(Translator &used, bool strip)
      : translator(used), stripsLocations(strip) {}
  ~OperationCopier() {
    // An error: nothing is left behind.
    if (root)
      destroyFromInside(root);
    if (placeholder) {
      placeholder->dropAllUses();
      placeholder->destroy();
    }
  }

  bool copy(Operation *source) {
    root = copyOne(source);
    if (!root)
      return false;
    while (!frames.empty())
      if (!step())
        return false;
    for (const ForwardReference &reference : forwardReferences) {
      Value value = lookup(reference.source);
      if (!value && translator.isIdentity())
        value = reference.source;
      if (!value)
        return failOperand(reference.source);
      reference.op->setOperand(reference.number, value);
    }
    for (Value from : reorderedValues)
      if (Value to = lookup(from))
        restoreOrder(from.getUses(), to);
    for (Block *from : reorderedBlocks)
      if (Block **to = blocks.find(from))
        restoreOrder(from->getUses(), **to);
    return true;
  }

  Operation *release() { return std::exchange(root, nullptr); }

  /// Regions in regions.
  size_t getDepth() const { return deepest; }

  /// The first error that is not the translator's.
  absl::Status status;

private:
  /// A region that is being filled.
  struct Frame {
    Region *source;
    Region::iterator block;
    Block::iterator op;
    Block *target;
  };
  struct ForwardReference {
    Operation *op;
    unsigned number;
    Value source;
  };

  Operation *failNull(Operation *op, const char *what, unsigned number) {
    status = absl::InvalidArgumentError(
        absl::StrCat("cannot clone the operation: ", what, " ", number, " of '",
                     op->getName().getStringRef().str(), "' is null"));
    return nullptr;
  }

  bool failOperand(Value value) {
    std::string name =
        value.getDefiningOp()
            ? value.getDefiningOp()->getName().getStringRef().str()
            : std::string("a block");
    status = absl::InvalidArgumentError(
        absl::StrCat("cannot clone the operation: it uses a value of ", name,
                     " that is defined outside of it"));
    return false;
  }

  Value lookup(Value source) {
    if (auto result = dyn_cast<OpResult>(source)) {
      Operation **owner = operations.find(result.getOwner());
      return owner ? (*owner)->getResult(result.getResultNumber()) : Value();
    }
    auto argument = cast<BlockArgument>(source);
    Block **owner = blocks.find(argument.getOwner());
    return owner ? (*owner)->getArgument(argument.getArgNumber()) : Value();
  }

  /// Any location where there is none: see the translator's status.
  Location translate(Location source) {
    if (stripsLocations)
      return UnknownLoc::get(&translator.getDestination());
    Attribute found = translator.translate(Attribute(source));
    return found ? Location(cast<LocationAttr>(found))
                 : Location(UnknownLoc::get(&translator.getDestination()));
  }

  /// Makes the counterpart of one operation, with empty regions. Null: see the
  /// translator's status, and this one's.
  Operation *copyOne(Operation *source) {
    NameTranslation *name = translator.translate(source);
    if (!name)
      return nullptr;
    Location location = translate(source->getLoc());
    DictionaryAttr attributes =
        translator.translateDictionary(source->getRawDictionaryAttrs());
    TranslatedProperties properties;
    if (!attributes ||
        !translator.translateProperties(source, *name, properties))
      return nullptr;

    types.clear();
    for (Type type : source->getResultTypes())
      types.push_back(translator.translate(type));
    operands.clear();
    size_t firstForward = forwardReferences.size();
    for (OpOperand &operand : source->getOpOperands()) {
      if (!operand.get())
        return failNull(source, "operand", operand.getOperandNumber());
      Value value = lookup(operand.get());
      // Forward references are resolved last, which is another order.
      if (!value || !isNewest(operand))
        reorderedValues.insert(operand.get());
      if (!value) {
        forwardReferences.push_back(
            {nullptr, operand.getOperandNumber(), operand.get()});
        value = getPlaceholder();
      }
      operands.push_back(value);
    }
    successors.clear();
    for (BlockOperand &operand : source->getBlockOperands()) {
      Block *successor = operand.get();
      if (!successor)
        return failNull(source, "successor", operand.getOperandNumber());
      Block **block = blocks.find(successor);
      if (!block && translator.isIdentity())
        block = &successor;
      if (!block) {
        status = absl::InvalidArgumentError(
            "cannot clone the operation: it branches to a block outside of it");
        return nullptr;
      }
      if (!isNewest(operand))
        reorderedBlocks.insert(successor);
      successors.push_back(*block);
    }
    // Also covers types and the location.
    if (!translator.getStatus().ok())
      return nullptr;

    DictionaryAttr empty = translator.getEmptyDictionary();
    Operation *made = Operation::create(location, name->name, types, operands,
                                        empty, properties.properties,
                                        successors, source->getNumRegions());
    for (size_t i = firstForward; i != forwardReferences.size(); ++i)
      forwardReferences[i].op = made;
    if (properties.isDeferred && !setProperties(made, properties.attribute)) {
      made->destroy();
      forwardReferences.resize(firstForward);
      return nullptr;
    }
    // Not at creation: there, an attribute with the name of a property would
    // become that property.
    if (attributes != empty)
      made->setDiscardableAttrs(attributes);

    operations[source] = made;
    for (unsigned i = source->getNumRegions(); i != 0; --i) {
      Region &region = source->getRegion(i - 1);
      if (!region.empty())
        pending.push_back({&region, &made->getRegion(i - 1)});
    }
    // The first region is filled first.
    for (auto [from, to] : pending)
      if (!openRegion(*from, *to)) {
        pending.clear();
        // In no block yet: nobody else would destroy it.
        made->destroy();
        return nullptr;
      }
    pending.clear();
    return made;
  }

  bool setProperties(Operation *made, Attribute attribute) {
    auto emit = [made] { return made->emitError(); };
    if (succeeded(made->setPropertiesFromAttribute(attribute, emit)))
      return true;
    status = absl::FailedPreconditionError(
        absl::StrCat("operation '", made->getName().getStringRef().str(),
                     "' does not take the properties of the source"));
    return false;
  }

  /// Makes the blocks of a region, and has it filled.
  bool openRegion(Region &source, Region &target) {
    for (Block &block : source) {
      Block *made = new Block();
      target.push_back(made);
      blocks[&block] = made;
      for (BlockArgument argument : block.getArguments()) {
        Type type = translator.translate(argument.getType());
        Location location = translate(argument.getLoc());
        // Also covers the location.
        if (!translator.getStatus().ok())
          return false;
        made->addArgument(type, location);
      }
    }
    frames.push_back(
        {&source, source.begin(), source.front().begin(), &target.front()});
    deepest = std::max(deepest, frames.size());
    return true;
  }

  /// Copies the next operation, of the region that was opened last.
  bool step() {
    Frame &frame = frames.back();
    if (frame.op == frame.block->end()) {
      if (++frame.block == frame.source->end()) {
        frames.pop_back();
        return true;
      }
      frame.op = frame.block->begin();
      frame.target = frame.target->getNextNode();
      return true;
    }
    Operation *source = &*frame.op++;
    // Opens regions: `frame` is no longer valid.
    Block *target = frame.target;
    if (frame.op != frame.block->end())
      prefetch(&*frame.op);
    Operation *made = copyOne(source);
    if (!made)
      return false;
    target->push_back(made);
    return true;
  }

  /// Has the operation and its place in the table fetched, while another one is
  /// copied: in a large module, each lies in memory of its own.
  void prefetch(Operation *source) {
    LLVM_PREFETCH(source, 0, 3);
    operations.prefetch(source);
  }

  /// Whether the use of what is being copied is newer than the one behind it in
  /// the list. Uses are made in the order of the copy, each in front of the
  /// others: where this holds for all uses, the list comes about by itself.
  template <typename Use>
  bool isNewest(Use &use) {
    auto *older = static_cast<Use *>(use.getNextOperandUsingThisValue());
    if (!older)
      return true;
    if (older->getOwner() == use.getOwner())
      return older->getOperandNumber() < use.getOperandNumber();
    return operations.find(older->getOwner());
  }

  Value getPlaceholder() {
    if (!placeholder) {
      MLIRContext *context = &translator.getDestination();
      OperationState state(UnknownLoc::get(context),
                           UnrealizedConversionCastOp::getOperationName());
      state.addTypes(NoneType::get(context));
      placeholder = Operation::create(state);
    }
    return placeholder->getResult(0);
  }

  /// Gives the uses of the copy the order of the source's.
  template <typename Range, typename Target>
  void restoreOrder(Range sourceUses, Target &&target) {
    auto counterpart = [&](auto &use) {
      Operation **owner = operations.find(use.getOwner());
      return owner ? *owner : nullptr;
    };
    bool isSame = true;
    auto use = target.getUses().begin(), end = target.getUses().end();
    for (auto &sourceUse : sourceUses) {
      Operation *owner = counterpart(sourceUse);
      // Uses outside of what is copied.
      if (!owner)
        continue;
      if (use == end || use->getOwner() != owner ||
          use->getOperandNumber() != sourceUse.getOperandNumber()) {
        isSame = false;
        break;
      }
      ++use;
    }
    if (isSame)
      return;

    llvm::DenseMap<std::pair<Operation *, unsigned>, unsigned> places;
    for (auto &sourceUse : sourceUses)
      if (Operation *owner = counterpart(sourceUse))
        places.try_emplace({owner, sourceUse.getOperandNumber()},
                           places.size());
    SmallVector<unsigned> order;
    for (auto &targetUse : target.getUses()) {
      auto place =
          places.find({targetUse.getOwner(), targetUse.getOperandNumber()});
      // A use that the source does not have: its order is then not known.
      if (place == places.end())
        return;
      order.push_back(place->second);
    }
    if (order.size() == places.size())
      target.shuffleUseList(order);
  }

  Translator &translator;
  const bool stripsLocations;
  PointerTable<Operation *, 6> operations;
  PointerTable<Block *, 6> blocks;
  std::vector<Frame> frames;
  std::vector<std::pair<Region *, Region *>> pending;
  std::vector<ForwardReference> forwardReferences;
  /// Whose uses the source has in another order than that of the copy.
  llvm::SmallSetVector<Value, 4> reorderedValues;
  llvm::SmallSetVector<Block *, 4> reorderedBlocks;
  SmallVector<Type> types;
  SmallVector<Value> operands;
  SmallVector<Block *> successors;
  Operation *root = nullptr;
  Operation *placeholder = nullptr;
  size_t deepest = 0;
};

/// MLIR's verifier recurses where isolated operations nest: with 22.1, 761 bytes
/// for each.
absl::Status verifyCopy(Operation *copy, size_t depth) {
  constexpr uint64_t bytesOfRegion = 2048;
  bool isValid = false;
  DiagnosticCapture diagnostics(*copy->getContext());
  if (absl::Status ran =
          runWithStack(depth * bytesOfRegion,
                       [&] { isValid = succeeded(mlir::verify(copy)); });
      !ran.ok())
    return ran;
  if (isValid)
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the clone does not verify: ", diagnostics.take()));
}

} // namespace

absl::StatusOr<OwningOpRef<Operation *>>
copyOperation(Operation *source, Translator &translator,
              const CloneOptions &options, bool stripLocations) {
  translator.begin(options.resources);
  OwningOpRef<Operation *> result;
  absl::Status status;
  size_t depth = 0;
  {
    OperationCopier copier(translator, stripLocations);
    if (copier.copy(source))
      result = copier.release();
    else
      status = copier.status.ok() ? translator.getStatus() : copier.status;
    depth = copier.getDepth();
  }
  if (status.ok() && options.verify) {
    status = verifyCopy(*result, depth);
    if (!status.ok())
      destroyFromInside(result.release());
  }
  translator.end(status.ok());
  if (!status.ok())
    return status;
  return result;
}

} // namespace ctxpool::detail
