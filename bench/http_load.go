package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

// keys chooses the keys that the clients send.
type keys int

const (
	// fresh keys are new with every request.
	fresh keys = iota
	// mixed keys are fresh, but every tenth request repeats the one before it.
	mixed
	// replayed keys were answered before the measurement.
	replayed
	// oneKey is the same key for all requests.
	oneKey
	// shared keys are fresh, and all clients send each of them at the same time.
	shared
)

// replayedKeys is the number of replayed keys.
const replayedKeys = 2000

// httpLoad has clients ask a site as fast as they can.
type httpLoad struct {
	site    *service
	keys    keys
	clients int
	length  time.Duration

	client   *http.Client
	executed atomic.Int64 // answers that were no replays
	answered atomic.Int64
}

// order is one request.
type order struct{ account, key string }

func freshOrder(i int) order { return order{accountID(i % aggregates), uuid.NewString()} }

func (l *httpLoad) run(ctx context.Context, m meter, to *series) error {
	transport := &http.Transport{
		DialContext: (&net.Dialer{}).DialContext, MaxIdleConns: l.clients, MaxIdleConnsPerHost: l.clients, DisableCompression: true,
	}
	defer transport.CloseIdleConnections()
	l.client = &http.Client{Transport: transport}

	var known []order
	if l.keys == replayed || l.keys == oneKey {
		n := map[keys]int{replayed: replayedKeys, oneKey: 1}[l.keys]
		for i := range n {
			known = append(known, freshOrder(i))
			if err := l.ask(ctx, known[i]); err != nil {
				return err
			}
		}
	}
	var wave waves
	var over atomic.Bool
	group, ctx := errgroup.WithContext(ctx)
	for client := range l.clients {
		group.Go(func() error {
			var latest order
			for turn := 0; !over.Load(); turn++ {
				switch {
				case known != nil:
					latest = known[(client+turn*l.clients)%len(known)]
				case l.keys == shared:
					latest = wave.order(turn)
				case l.keys == mixed && turn%10 == 9: // the latest once more
				default:
					latest = freshOrder(client + turn*l.clients)
				}
				if err := l.ask(ctx, latest); err != nil {
					return err
				}
			}
			return nil
		})
	}
	pause(ctx, warmUp)
	measureWindow(ctx, l.length, &l.answered, m, to)
	over.Store(true)
	return group.Wait()
}

// waves are the keys that all clients go through.
type waves struct {
	mu     sync.Mutex
	orders []order
}

func (w *waves) order(i int) order {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i == len(w.orders) {
		w.orders = append(w.orders, freshOrder(i))
	}
	return w.orders[i]
}

// ask sends one request and reads its answer.
func (l *httpLoad) ask(ctx context.Context, o order) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, l.site.url+"/accounts/"+o.account, strings.NewReader(`{"amount":1}`))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", jsonMedia)
	r.Header.Set("Idempotency-Key", o.key)
	answer, err := l.client.Do(r)
	if err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	if l.keys == shared && answer.StatusCode == http.StatusConflict {
		l.answered.Add(1)
		return l.ask(ctx, o)
	}
	if answer.StatusCode != http.StatusOK || !bytes.Contains(body, []byte(o.account)) {
		return fmt.Errorf("%w: %s was answered %s %s", errWrong, o.account, answer.Status, body)
	}
	l.answered.Add(1)
	if answer.Header.Get("Idempotent-Replayed") == "" {
		l.executed.Add(1)
	}
	return nil
}

// verify counts the effects.
func (l *httpLoad) verify(ctx context.Context, s *schema) error {
	db, err := s.bun(pgx.QueryExecModeExec, 1)
	if err != nil {
		return err
	}
	defer db.Close()
	var effects int64
	if err := db.DB.QueryRowContext(ctx, "SELECT coalesce(sum(balance), 0)::bigint FROM account").Scan(&effects); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	if effects != l.executed.Load() {
		return fmt.Errorf("%w: %d answers that were no replays, and %d effects", errWrong, l.executed.Load(), effects)
	}
	return nil
}
