package httpmw_test

import (
	"context"
	"database/sql"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/uow"
)

// silent is a connection that stays open and over which nothing comes any more once its machine has vanished: neither data nor the
// end of the connection.
type silent struct {
	net.Conn

	vanished *atomic.Bool
	end      <-chan struct{}
}

func (c *silent) Write(p []byte) (int, error) {
	if c.vanished.Load() {
		<-c.end
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

func (c *silent) Close() error {
	if c.vanished.Load() {
		<-c.end
	}
	return c.Conn.Close()
}

// The machine of a process vanishes while its handler runs: the server holds the key for a transaction of which nobody will hear
// again.
func TestKeyOfAMachineThatVanishes(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(cfg *pgx.ConnConfig) *sql.DB{
		"config.OpenDB": func(cfg *pgx.ConnConfig) *sql.DB { return sql.OpenDB(pgsql.NewConnector(*cfg)) },
		"any pool":      func(cfg *pgx.ConnConfig) *sql.DB { return stdlib.OpenDB(*cfg) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			s.cfg.Timeout = 10 * time.Second // the handler has to be reached within it, also on a machine that pauses
			end, begun, vanished := make(chan struct{}), make(chan struct{}), new(atomic.Bool)
			cfg, err := pgx.ParseConfig(s.db.DSN)
			require.NoError(t, err)
			cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, addr)
				return &silent{conn, vanished, end}, err
			}
			pool := open(cfg)
			t.Cleanup(func() { _ = pool.Close() })

			alive, frozen := s.units, uow.New(bun.NewDB(pool, pgdialect.New()), &s.unitConfig)
			s.units = frozen
			s.start(func(w http.ResponseWriter, r *http.Request) {
				vanished.Store(true)
				close(begun)
				<-end
				w.WriteHeader(http.StatusCreated)
			})
			lost := make(chan struct{})
			r := s.request("k", "{}")
			go func() {
				defer close(lost)
				got, err := send(r)
				noError(t, err)
				if got.status != http.StatusServiceUnavailable {
					t.Errorf("who has vanished commits nothing: %d", got.status)
				}
			}()
			select {
			case <-begun:
			case <-lost:
				t.Fatal("the handler was not reached")
			}
			s.units, s.cfg.Timeout = alive, 0
			s.start(s.pay)
			require.Equal(t, http.StatusConflict, s.post("k", "{}").status)
			require.Eventually(t, func() bool { return s.post("k", "{}").status == http.StatusCreated }, 2*time.Minute, 50*time.Millisecond)
			close(end)
			<-lost
			require.Equal(t, 1, s.payments())
		})
	}
}
