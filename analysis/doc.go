// Package analysis finds mistakes in programs that use oncebox, if neither the compiler nor an error at run time reports them. It has one analyzer
// of go vet for each mistake:
//
//	go install github.com/oncebox/oncebox/analysis/cmd/oncebox-vet@latest
//	go vet -vettool=$(which oncebox-vet) ./...
//
// Until a release, install it from a clone: go -C analysis install ./cmd/oncebox-vet.
//
//   - [Pool]: a statement on the pool within a unit of work. It is committed by itself, even if the unit is rolled back.
//   - [Track]: an aggregate that has recorded events within a unit of work, and is never passed to the unit. Its events are lost.
//
// The analyzers look at the functions that run in a unit of work: functions that are passed to Manager.Do, handlers that are passed to Consume,
// Wrap, ConsumeBatch and WrapBatch of an inbox, and handlers of routers in a package that has a consumer.
//
// They report nothing if they cannot be sure. If an aggregate is passed to another function, that function may track it. If a pool was stored in
// an interface, they cannot recognize it. With config.Config.RefusePool a running program finds a statement on the pool within a unit.
package analysis
