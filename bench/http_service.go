package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/uow"
)

const jsonMedia, plainMedia = "application/json", "text/plain"

// service listens on a loopback socket.
type service struct {
	url   string
	close func()
}

// listen serves the route POST /accounts/{id}.
func listen(ctx context.Context, handler http.Handler, done func()) (*service, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		done()
		return nil, fmt.Errorf("listen: %w", err)
	}
	r := chi.NewRouter()
	r.Method(http.MethodPost, "/accounts/{id}", handler)
	server := &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	over := make(chan struct{})
	go func() {
		defer close(over)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			progressf("the service ended: %v", err)
		}
	}()
	return &service{url: "http://" + listener.Addr().String(), close: func() {
		_ = server.Close()
		<-over
		done()
	}}, nil
}

// deposit is the request, and balanceOf the answer.
type (
	deposit struct {
		Amount int64 `json:"amount"`
	}
	balanceOf struct {
		Account string `json:"account"`
		Balance int64  `json:"balance"`
	}
)

const depositText = `UPDATE account SET balance = balance + $1 WHERE id = $2 RETURNING balance`

// readDeposit reads what is asked for.
func readDeposit(r *http.Request) (account string, amount int64, err error) {
	var d deposit
	err = json.NewDecoder(r.Body).Decode(&d)
	return chi.URLParam(r, "id"), d.Amount, err
}

func answerWith(w http.ResponseWriter, account string, balance int64, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	body, err := json.Marshal(balanceOf{account, balance})
	if err != nil {
		panic(err) // a string and a number
	}
	w.Header().Set("Content-Type", jsonMedia)
	_, _ = w.Write(body)
}

func serveBare(ctx context.Context, s *schema, conns int) (*service, error) {
	pool, err := s.pgx(ctx, conns)
	if err != nil {
		return nil, err
	}
	return listen(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, amount, err := readDeposit(r)
		var balance int64
		if err == nil {
			err = pgx.BeginFunc(r.Context(), pool, func(tx pgx.Tx) error {
				return tx.QueryRow(r.Context(), depositText, amount, id).Scan(&balance)
			})
		}
		answerWith(w, id, balance, err)
	}), pool.Close)
}

const (
	createHandKeys = `
CREATE TABLE hand_keys (key_hash bytea PRIMARY KEY, request_hash bytea NOT NULL, status smallint, content_type text, body bytea,
	created_at timestamptz NOT NULL DEFAULT now())`

	handClaim  = `INSERT INTO hand_keys (key_hash, request_hash) VALUES ($1, $2) ON CONFLICT DO NOTHING`
	handLook   = `SELECT request_hash, status, content_type, body FROM hand_keys WHERE key_hash = $1`
	handAnswer = `UPDATE hand_keys SET status = $2, content_type = $3, body = $4 WHERE key_hash = $1`
)

// serveByHand checks the key in one transaction with the work, as an expert would write it by hand.
func serveByHand(ctx context.Context, s *schema, conns int) (*service, error) {
	pool, err := s.pgx(ctx, conns)
	if err != nil {
		return nil, err
	}
	return listen(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handKeyed(w, r, pool) }), pool.Close)
}

// handKey is what a key is found by, for all that is written by hand.
func handKey(r *http.Request) [sha256.Size]byte {
	return sha256.Sum256([]byte("u1\x00" + r.URL.Path + "\x00" + r.Header.Get("Idempotency-Key")))
}

func handKeyed(w http.ResponseWriter, r *http.Request, pool *pgxpool.Pool) {
	ctx := r.Context()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	key := handKey(r)
	request := sha256.Sum256(body)
	id := chi.URLParam(r, "id")
	var (
		status int
		answer []byte
		kind   string
	)
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		claimed, err := tx.Exec(ctx, handClaim, key[:], request[:])
		if err != nil {
			return err
		}
		if claimed.RowsAffected() == 0 {
			var sum []byte
			err := tx.QueryRow(ctx, handLook, key[:]).Scan(&sum, &status, &kind, &answer)
			if err == nil && string(sum) != string(request[:]) {
				status, kind, answer = http.StatusUnprocessableEntity, plainMedia, []byte("another request\n")
			}
			w.Header().Set("Idempotent-Replayed", "true")
			return err
		}
		var d deposit
		if err := json.Unmarshal(body, &d); err != nil {
			return err
		}
		var balance int64
		if err := tx.QueryRow(ctx, depositText, d.Amount, id).Scan(&balance); err != nil {
			return err
		}
		status, kind = http.StatusOK, jsonMedia
		if answer, err = json.Marshal(balanceOf{id, balance}); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, handAnswer, key[:], status, kind, answer)
		return err
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, _ = w.Write(answer)
}

// serveOncebox is the service as a user of httpmw writes it. Only the statement is sent in the way of the floors.
func serveOncebox(ctx context.Context, s *schema, conns int) (*service, error) {
	return serveKeyed(ctx, s, conns, nil, func(once func() http.Handler) http.Handler { return once() })
}

// serveWaiting has requests wait for others with the same key.
func serveWaiting(ctx context.Context, s *schema, conns int) (*service, error) {
	cfg := &httpmw.IdempotencyConfig{Wait: time.Minute}
	return serveKeyed(ctx, s, conns, cfg, func(once func() http.Handler) http.Handler { return once() })
}

// serveForgetful is like a new process for the replayed keys: so many requests came after them that nothing
// in memory remembers them.
func serveForgetful(ctx context.Context, s *schema, conns int) (*service, error) {
	return serveKeyed(ctx, s, conns, nil, func(once func() http.Handler) http.Handler {
		var mu sync.Mutex
		var handler http.Handler
		n := 0
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			if n%replayedKeys == 0 {
				handler = once()
			}
			n++
			now := handler
			mu.Unlock()
			now.ServeHTTP(w, r)
		})
	})
}

// serveKeyed serves what root makes of handlers with a store of their own.
func serveKeyed(
	ctx context.Context, s *schema, conns int, cfg *httpmw.IdempotencyConfig, root func(once func() http.Handler) http.Handler,
) (*service, error) {
	db, err := s.bun(pgx.QueryExecModeExec, conns)
	if err != nil {
		return nil, err
	}
	units := uow.New(db, nil)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, amount, err := readDeposit(r)
		var balance int64
		if err == nil {
			balance, err = preparedBalance(r.Context(), units.DB(r.Context()), amount, id)
		}
		answerWith(w, id, balance, err)
	})
	once := func() http.Handler {
		return httpmw.Idempotency(units, idempotency.NewStore(&idempotency.Config{Schema: s.name}), func(*http.Request) (idempotency.Scope, error) {
			return idempotency.Scope{Principal: "u1"}, nil
		}, cfg)(handler)
	}
	return listen(ctx, root(once), func() { _ = db.Close() })
}

func preparedBalance(ctx context.Context, db bun.IDB, amount int64, id string) (balance int64, err error) {
	tx, ok := db.(bun.Tx)
	if !ok {
		return 0, fmt.Errorf("the handler runs outside of a unit, with a %T", db)
	}
	err = tx.Tx.QueryRowContext(ctx, depositText, pgx.QueryExecModeCacheStatement, amount, id).Scan(&balance)
	return balance, err
}
