package kills

import (
	"context"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/oncebox/oncebox/examples/orders/shop"
)

// client sends requests to wherever the service is, and insists on an answer.
type client struct {
	addr func() string
	http *http.Client
	name string // which the service repeats

	mu      sync.Mutex
	results map[string][]result // by tenant and key
	tally   tally
}

// tally counts what happened on the way to the answers.
type tally struct {
	posts       int // answers
	refused     int // no process was there, or it was killed before it answered
	inFlight    int // answers 409
	unavailable int // answers 503
	replayed    int // answers that were stored before
}

func newClient(addr func() string) *client {
	return &client{
		addr: addr, results: map[string][]result{}, name: crand.Text(),
		http: &http.Client{Timeout: 40 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
	}
}

// send sends one request, with one key, until it is answered. A service that cannot be reached, a key in flight (409) and a service that cannot reach its
// database (503) are not answers: the client sends the same again.
func (c *client) send(ctx context.Context, s step) (result, error) {
	for {
		r, retry, err := c.once(ctx, s)
		if !retry {
			return r, err
		}
		pause := time.NewTimer(25 * time.Millisecond) // as clients do that come again
		select {
		case <-pause.C:
		case <-ctx.Done():
			return result{}, fmt.Errorf("%s was not answered: %w", s.key, errors.Join(ctx.Err(), err))
		}
		pause.Stop()
	}
}

func (c *client) once(ctx context.Context, s step) (r result, retry bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.addr()+s.path, strings.NewReader(s.body))
	if err != nil {
		return result{}, false, err
	}
	req.Header.Set("X-Tenant-Id", s.tenant)
	req.Header.Set("Idempotency-Key", s.key)
	req.Header.Set("X-Correlation-ID", c.name)
	resp, err := c.http.Do(req)
	if err != nil {
		c.count(func(t *tally) { t.refused++ })
		return result{}, true, err
	}
	defer resp.Body.Close()
	if resp.Header.Get("X-Correlation-ID") != c.name {
		c.count(func(t *tally) { t.refused++ })
		return result{}, true, errors.New("the port of the killed process is that of another one by now")
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.count(func(t *tally) { t.refused++ })
		return result{}, true, err
	}
	switch resp.StatusCode {
	case http.StatusConflict:
		c.count(func(t *tally) { t.inFlight++ })
		return result{}, true, errors.New("in flight")
	case http.StatusServiceUnavailable:
		c.count(func(t *tally) { t.unavailable++ })
		return result{}, true, fmt.Errorf("unavailable: %s", body)
	}
	r = result{
		Status: resp.StatusCode, Body: string(body), Location: resp.Header.Get("Location"), ContentType: resp.Header.Get("Content-Type"),
	}
	c.count(func(t *tally) {
		t.posts++
		if resp.Header.Get("Idempotent-Replayed") == "true" {
			t.replayed++
		}
		c.results[s.tenant+"/"+s.key] = append(c.results[s.tenant+"/"+s.key], r)
	})
	return r, false, nil
}

func (c *client) count(change func(*tally)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.tally)
}

// twice sends each of the steps from two clients at once, and returns the answer to the first client of the first step.
func (c *client) twice(ctx context.Context, steps []step) (result, error) {
	results, errs := make([]result, 2*len(steps)), make([]error, 2*len(steps))
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() { results[i], errs[i] = c.send(ctx, steps[i/2]) })
	}
	wg.Wait()
	return results[0], errors.Join(errs...)
}

// carryOut carries out the plan and returns the requests as they were sent.
func (c *client) carryOut(ctx context.Context, p plan) (sent []step, err error) {
	placed, err := c.twice(ctx, []step{p.place})
	if err != nil {
		return nil, err
	}
	sent = append(sent, p.place)
	for _, group := range p.changes {
		steps := make([]step, len(group))
		for i, s := range group {
			s.path = placed.Location + s.path
			steps[i] = s
		}
		if _, err := c.twice(ctx, steps); err != nil {
			return nil, err
		}
		sent = append(sent, steps...)
	}
	return sent, nil
}

// summary asks for the read model of one customer.
func (c *client) summary(ctx context.Context, of customer) (s shop.Summary, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.addr()+"/customers/"+of.id+"/summary", http.NoBody)
	if err != nil {
		return s, err
	}
	req.Header.Set("X-Tenant-Id", of.tenant)
	resp, err := c.http.Do(req)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return s, fmt.Errorf("summary of %v: %s", of, resp.Status)
	}
	return s, json.NewDecoder(resp.Body).Decode(&s)
}
