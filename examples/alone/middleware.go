package alone

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/migrations"
	"github.com/oncebox/oncebox/uow"
)

// Payments serves POST /payments, each Idempotency-Key once. authenticated checks a user's password.
func Payments(ctx context.Context, db *bun.DB, authenticated func(user, password string) bool) (http.Handler, error) {
	if err := migrations.Up(ctx, db, nil); err != nil { // the tables of oncebox
		return nil, err
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS payments (id bigserial PRIMARY KEY)"); err != nil {
		return nil, err
	}
	units, keys := uow.New(db, nil), idempotency.NewStore(nil)
	scope := func(r *http.Request) (idempotency.Scope, error) {
		user, password, _ := r.BasicAuth()
		if !authenticated(user, password) {
			return idempotency.Scope{}, nil // without a principal the answer is 401
		}
		return idempotency.Scope{Principal: user}, nil // a key belongs to its user
	}
	r := chi.NewRouter()
	r.With(httpmw.Idempotency(units, keys, scope, &httpmw.IdempotencyConfig{Required: true})).
		Post("/payments", func(w http.ResponseWriter, r *http.Request) {
			tx := units.DB(r.Context()) // the transaction in which the answer is stored
			if _, err := tx.NewRaw("INSERT INTO payments DEFAULT VALUES").Exec(r.Context()); err != nil {
				http.Error(w, "failed", http.StatusInternalServerError) // rolled back, and the key is free
				return
			}
			w.WriteHeader(http.StatusCreated)
		})
	return r, nil
}

// PurgeKeys removes expired keys every hour, until ctx is done.
func PurgeKeys(ctx context.Context, db *bun.DB) {
	keys := idempotency.NewStore(nil)
	for {
		if _, err := keys.Purge(ctx, db); err != nil {
			slog.WarnContext(ctx, "expired keys stay for another hour", "error", err)
		}
		select {
		case <-time.After(time.Hour):
		case <-ctx.Done():
			return
		}
	}
}
