package oncebox_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/apptest"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/uow"
)

// A transfer concerns two accounts. Under one ordering key, what happened to them is handled in the order of the commits,
// although they are two aggregates: the second waits while the first fails.
func TestOrderingKeyOrdersSeveralAggregates(t *testing.T) {
	for name, broker := range map[string]oncebox.Broker{"memory": memory.New(nil), "direct": nil} {
		t.Run(name, func(t *testing.T) {
			db, cfg := pgtest.Migrated(t), apptest.Config()
			cfg.Inbox.Retry.Tries, cfg.Inbox.Retry.Delay, cfg.Inbox.PollInterval = 1, 100*time.Millisecond, 10*time.Millisecond
			app, err := oncebox.New(db.DB, broker, cfg)
			require.NoError(t, err)
			var mu sync.Mutex
			var handled, keys []string
			failures := 2
			app.Consume("account", "ledger", messaging.HandlerFunc(func(_ context.Context, m *messaging.Message) error {
				mu.Lock()
				defer mu.Unlock()
				keys = append(keys, m.OrderingKey()+" "+m.RoutingKey+" "+m.Delivery.OrderingKey)
				if failures--; failures >= 0 {
					return errors.New("not now")
				}
				handled = append(handled, m.AggregateID)
				return nil
			}))
			for _, account := range []string{"from", "to"} {
				require.NoError(t, app.UoW.Do(t.Context(), func(_ context.Context, u *uow.Unit) error {
					return u.Add("account", []byte("{}"), event.WithAggregate("account", account, 0), event.WithOrderingKey("transfer-1"))
				}))
			}
			apptest.Run(t, app)
			await.True(t, func() bool {
				mu.Lock()
				defer mu.Unlock()
				return len(handled) == 2
			}, "both are handled")
			require.Equal(t, []string{"from", "to"}, handled)
			for _, key := range keys {
				require.Equal(t, "default|transfer-1 transfer-1 transfer-1", key, "at the first try, and when it was parked")
			}
		})
	}
}
