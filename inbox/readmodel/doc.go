// Package readmodel makes read models of messages, each message once, and makes them anew of the events that are kept, while messages go on coming.
//
//	balances := readmodel.New(box, "balances", router)
//	err := box.Consume("wallet", "balances", balances)
//	err = balances.Rebuild(ctx, empty, store.Published().History("wallet"), nil)
//
// A rebuild begins a generation: the inbox has one consumer for each, "balances" at first and then "balances@1" and so on. Live messages wait in the
// database until all that is kept was replayed, and are handled behind it.
//
// Read first: model.go:New, rebuild.go:Model.Rebuild, reset.go:rebuild.reset, then inbox/internal/store/gate.go.
package readmodel
