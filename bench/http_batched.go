package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// serveBatched is serveByHand with as few round trips as are possible: three.
func serveBatched(ctx context.Context, s *schema, conns int) (*service, error) {
	pool, err := s.pgx(ctx, conns)
	if err != nil {
		return nil, err
	}
	return listen(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		b := &batched{
			account: chi.URLParam(r, "id"), key: handKey(r),
			request: sha256.Sum256(body),
		}
		if err := b.run(r.Context(), pool, body); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if b.replayed {
			w.Header().Set("Idempotent-Replayed", "true")
		}
		w.Header().Set("Content-Type", b.kind)
		w.WriteHeader(b.status)
		_, _ = w.Write(b.answer)
	}), pool.Close)
}

// batched is one request and its answer.
type batched struct {
	account      string
	key, request [sha256.Size]byte

	replayed bool
	status   int
	kind     string
	answer   []byte
}

func (b *batched) run(ctx context.Context, pool *pgxpool.Pool, body []byte) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release() // closes it if the transaction is open still
	first := &pgx.Batch{}
	first.Queue("BEGIN")
	first.Queue(handClaim, b.key[:], b.request[:])
	results := conn.SendBatch(ctx, first)
	_, err = results.Exec()
	claimed, claimErr := results.Exec()
	if closeErr := results.Close(); closeErr != nil {
		return closeErr
	}
	if err := errors.Join(err, claimErr); err != nil {
		return err
	}
	if claimed.RowsAffected() == 0 {
		return b.look(ctx, conn)
	}
	var d deposit
	if err := json.Unmarshal(body, &d); err != nil {
		return err
	}
	var balance int64
	if err := conn.QueryRow(ctx, depositText, d.Amount, b.account).Scan(&balance); err != nil {
		return err
	}
	b.status, b.kind = http.StatusOK, jsonMedia
	if b.answer, err = json.Marshal(balanceOf{b.account, balance}); err != nil {
		return err
	}
	last := &pgx.Batch{}
	last.Queue(handAnswer, b.key[:], b.status, b.kind, b.answer)
	last.Queue("COMMIT")
	return conn.SendBatch(ctx, last).Close()
}

func (b *batched) look(ctx context.Context, conn *pgxpool.Conn) error {
	b.replayed = true
	var sum []byte
	if err := conn.QueryRow(ctx, handLook, b.key[:]).Scan(&sum, &b.status, &b.kind, &b.answer); err != nil {
		return err
	}
	if string(sum) != string(b.request[:]) {
		b.status, b.kind, b.answer = http.StatusUnprocessableEntity, plainMedia, []byte("another request\n")
	}
	_, err := conn.Exec(ctx, "ROLLBACK")
	return err
}
