// Package analysis finds mistakes that a program which uses oncebox makes without a word. Each is an analyzer of go vet:
//
//	go install github.com/oncebox/oncebox/analysis/cmd/oncebox-vet@latest
//	go vet -vettool=$(which oncebox-vet) ./...
//
// Until a release, install it from a clone: go -C analysis install ./cmd/oncebox-vet.
//
//   - [Pool]: a statement on the pool within a unit of work. It is committed by itself, whatever becomes of the unit.
//   - [Track]: an aggregate that has recorded events within a unit of work, and is never given to it. Its events are lost.
//
// A unit of work is what Manager.Do runs, and what an inbox runs for a message: the handlers given to Consume, Wrap, ConsumeBatch and WrapBatch, and
// those of routers in a package that has a consumer.
//
// They say nothing where they cannot be sure: an aggregate that is passed to any function may be tracked there, and a pool that
// has been stored in an interface is not seen. config.Config.RefusePool finds the pool within a unit where the program runs.
package analysis
