package recipes_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/examples/recipes"
	"github.com/oncebox/oncebox/oncetest"
	"github.com/oncebox/oncebox/uow"
)

func TestPricesThatAreTooOldAreSkipped(t *testing.T) {
	kit := oncetest.New(t, func(s oncetest.Setup) (*oncebox.App, error) {
		app, err := oncebox.New(s.DB, s.Broker, s.Config)
		if err != nil {
			return nil, err
		}
		event.Register[recipes.PriceSet](app.Registry)
		recipes.ConsumePrices(app, func(string, time.Duration) {})
		_, err = s.DB.ExecContext(t.Context(), "CREATE TABLE price (sku text PRIMARY KEY, cents bigint NOT NULL)")
		return app, err
	})
	within(t, kit, func(_ context.Context, u *uow.Unit) error {
		return u.Add("price", recipes.PriceSet{SKU: "pear", Cents: 30}, func(e *event.Envelope) { e.OccurredAt = time.Now().Add(-2 * time.Hour) })
	})
	within(t, kit, func(_ context.Context, u *uow.Unit) error {
		return u.Add("price", recipes.PriceSet{SKU: "apple", Cents: 20})
	})
	kit.Drain()
	var skus []string
	require.NoError(t, kit.DB.NewRaw("SELECT sku FROM price").Scan(t.Context(), &skus))
	require.Equal(t, []string{"apple"}, skus)
}
