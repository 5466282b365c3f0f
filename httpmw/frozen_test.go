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

	"github.com/oncebox/oncebox/internal/await"
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

// The machine of a process vanishes while its handler runs: the server holds the key for a transaction that nobody will end
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
			end, begun, vanished := make(chan struct{}), make(chan struct{}), new(atomic.Bool)
			cfg, err := pgx.ParseConfig(s.db.DSN)
			require.NoError(t, err)
			cfg.RuntimeParams["application_name"] = s.db.Schema
			cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, addr)
				return &silent{conn, vanished, end}, err
			}
			pool := open(cfg)
			t.Cleanup(func() { _ = pool.Close() })

			alive, frozen := s.units, uow.New(bun.NewDB(pool, pgdialect.New()), &s.unitConfig)
			s.units = frozen
			var lost chan struct{}
			reached := func() bool {
				s.start(func(w http.ResponseWriter, _ *http.Request) {
					vanished.Store(true)
					close(begun)
					<-end
					w.WriteHeader(http.StatusCreated)
				})
				lost = make(chan struct{})
				r := s.request("k", "{}")
				go func() {
					defer close(lost)
					got, err := send(r)
					noError(t, err)
					if got.status != http.StatusServiceUnavailable {
						t.Errorf("a vanished process commits nothing: %d", got.status)
					}
				}()
				select {
				case <-begun:
					return true
				case <-lost:
					return vanished.Load()
				}
			}
			for s.cfg.Timeout = time.Second; !reached(); s.cfg.Timeout *= 2 { // a machine that pauses does not reach it within a second
			}
			s.units, s.cfg.Timeout = alive, 0
			s.start(s.pay)
			require.Equal(t, http.StatusConflict, s.post("k", "{}").status)
			await.True(t, func() bool {
				return s.count("SELECT count(*) FROM pg_stat_activity WHERE application_name = '"+s.db.Schema+"'") == 0
			}, "the server to end the session of the machine that vanished")
			require.Equal(t, http.StatusCreated, s.post("k", "{}").status)
			close(end)
			<-lost
			require.Equal(t, 1, s.payments())
		})
	}
}
