package fit_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/examples/fit/plainsql"
	"github.com/oncebox/oncebox/examples/fit/withgorm"
	"github.com/oncebox/oncebox/examples/fit/withsqlc"
	"github.com/oncebox/oncebox/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func pool(t *testing.T, s *service) *sql.DB {
	t.Helper()
	opened, err := sql.Open("pgx", s.DSN)
	require.NoError(t, err)
	t.Cleanup(func() { _ = opened.Close() })
	return opened
}

func TestPlainSQL(t *testing.T) {
	s := newService(t)
	pool := pool(t, s)
	db, err := config.UseDB(t.Context(), pool, config.Config{})
	require.NoError(t, err)
	store, units := parts(db)
	wallet := &plainsql.Wallet{DB: pool, Outbox: store}
	testWallet(s, units, wallet.Deposit, plainsql.DepositIn)
}

func TestSQLC(t *testing.T) {
	s := newService(t)
	pool, err := pgxpool.New(t.Context(), s.DSN)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	db, err := config.UsePool(t.Context(), pool, config.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	store, units := parts(db)
	wallet := &withsqlc.Wallet{Pool: pool, Outbox: store}
	testWallet(s, units, wallet.Deposit, withsqlc.DepositIn)
}

func TestGORM(t *testing.T) {
	s := newService(t)
	pool := pool(t, s)
	orm, err := gorm.Open(postgres.New(postgres.Config{Conn: pool}), &gorm.Config{})
	require.NoError(t, err)
	db, err := config.UseDB(t.Context(), pool, config.Config{})
	require.NoError(t, err)
	store, units := parts(db)
	wallet := &withgorm.Wallet{DB: orm, Outbox: store}
	testWallet(s, units, wallet.Deposit, wallet.DepositIn)
}
