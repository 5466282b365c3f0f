// Package readmodel fills read models from messages, each message once. It can also rebuild a read model from the events that the outbox has kept,
// while new messages go on coming.
//
//	balances := readmodel.New(box, "balances", router)
//	err := box.Consume("wallet", "balances", balances)
//	err = balances.Rebuild(ctx, empty, store.Published().History("wallet"), nil)
//
// A rebuild begins a new generation. The inbox has one consumer for each generation: "balances" for the first, then "balances@1" and so on. During
// a rebuild new messages wait in the database. They are handled when all kept events have been replayed.
//
// Read first: model.go:New, rebuild.go:Model.Rebuild, reset.go:rebuild.reset, then inbox/internal/store/gate.go.
package readmodel
