package recipes

import (
	"context"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// ConsumeDeposits keeps a statement of deposits. The topic also has events of other types, which this service ignores.
func ConsumeDeposits(app *oncebox.App) {
	router := messaging.NewRouter(app.Registry)
	messaging.Handle(router, func(ctx context.Context, e Deposited) error {
		u := uow.MustFromContext(ctx)
		_, err := u.DB().NewRaw("INSERT INTO statement VALUES (?, ?)", e.Wallet, e.Cents).Exec(ctx)
		return err
	})
	router.Ignore("wallet.renamed")
	app.Consume("wallet", "statement", router)
}
