package pool

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
	"github.com/uptrace/bun"
)

type service struct {
	units *uow.Manager
	db    *bun.DB
	plain *sql.DB
	pgx   *pgxpool.Pool
}

func store(ctx context.Context, db bun.IDB) error { return db.Exec("INSERT") }

func open(db *bun.DB) *service { return &service{db: db} }

func (s *service) wrong(ctx context.Context) error {
	return s.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		if err := s.db.Exec("INSERT"); err != nil { // want `use u.DB\(\)`
			return err
		}
		if _, err := s.plain.ExecContext(ctx, "INSERT"); err != nil { // want `use u.SQL\(\)`
			return err
		}
		if err := s.pgx.Exec(ctx, "INSERT"); err != nil { // want `use u.Pgx\(\)`
			return err
		}
		return store(ctx, s.db) // want `pass u.DB\(\)`
	})
}

func (s *service) right(ctx context.Context) error {
	if err := s.db.Exec("SELECT"); err != nil { // the unit has not begun
		return err
	}
	return s.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		_ = s.plain.Stats()
		_ = open(s.db) // open has a parameter of the pool's own type, so it means the pool
		if err := u.DB().Exec("INSERT"); err != nil {
			return err
		}
		if _, err := u.SQL().Exec("INSERT"); err != nil {
			return err
		}
		return store(ctx, u.DB())
	})
}

func (s *service) consume(box *inbox.Inbox, router *messaging.Router) {
	messaging.Handle(router, func(ctx context.Context, e string) error {
		return s.db.Exec("INSERT") // want `use u.DB\(\)`
	})
	box.Consume("order", "routed", router)
	box.Consume("order", "literal", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		return s.db.Exec("INSERT") // want `use u.DB\(\)`
	}))
	box.Consume("order", "method", messaging.HandlerFunc(s.handle))
	box.ConsumeBatch("order", "batch", s.handleAll)
	box.Consume("order", "leased", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		return s.db.Exec("INSERT") // runs outside of any unit
	}), inbox.Leased())
}

func (s *service) handle(ctx context.Context, m *messaging.Message) error {
	return s.db.Exec("INSERT") // want `use u.DB\(\)`
}

func (s *service) handleAll(ctx context.Context, msgs []*messaging.Message) error {
	return s.db.Exec("INSERT") // want `use u.DB\(\)`
}

func (s *service) unused(ctx context.Context, m *messaging.Message) error { return s.db.Exec("INSERT") }
