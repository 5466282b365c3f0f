package idempotency

import (
	"database/sql"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/uptrace/bun"
)

const (
	// cachedFor is how long an answer is served from memory. A row that expires sooner is not cached; the statement that reads it returns whether it
	// is.
	cachedFor = time.Minute
	// cachedBytes is the largest answer that is kept in memory, headers included.
	cachedBytes = 4 << 10
)

// cache holds the answers that were asked for more than once. It can be wrong only if somebody has removed an answer, because completed rows never
// change otherwise. Then the removed answer is served for at most a minute longer.
//
// A look-up may have read a row that is released or erased before its result is cached. So a released key leaves a mark, and is not cached as long
// as the mark lasts.
//
// A store may serve several databases, each by a pool of its own. If two of them have the same key, the answer of the pool that was asked last is
// cached.
type cache struct {
	answers *lru.Cache[Key, *cached]

	mu       sync.Mutex
	released map[Key]time.Time // until when the key is not cached
	marks    []mark            // one for each entry of released, ordered by its end
	emptied  time.Time         // results of look-ups that began before are not cached
}

// mark is the mark of a released key.
type mark struct {
	key   Key
	until time.Time
}

// cached is an answer with the fingerprint of its request.
type cached struct {
	pool  *sql.DB
	fp    Fingerprint
	resp  Response
	until time.Time
}

// newCache returns nil for a size that is not positive. A nil cache is empty.
func newCache(size int) *cache {
	if size <= 0 {
		return nil
	}
	answers, err := lru.New[Key, *cached](size)
	if err != nil {
		panic(err) // for sizes that are not positive
	}
	return &cache{answers: answers, released: map[Key]time.Time{}}
}

// get returns nil if the answer is not cached, or for too long. It returns nothing for a transaction, which may see rows that it is about to roll
// back.
func (c *cache) get(db bun.IDB, key Key, now time.Time) *cached {
	pool, ok := db.(*bun.DB)
	if c == nil || !ok {
		return nil
	}
	found, ok := c.answers.Get(key)
	if !ok || found.pool != pool.DB || now.After(found.until) {
		return nil
	}
	return found
}

// put caches the result of a look-up that began at the time asked.
func (c *cache) put(db bun.IDB, key Key, fp Fingerprint, resp Response, asked time.Time) {
	pool, ok := db.(*bun.DB)
	if c == nil || !ok || resp.size() > cachedBytes {
		return
	}
	for name, values := range resp.Header {
		resp.Header[name] = slices.Clip(values) // a caller that appends a value gets a copy
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if until, ok := c.released[key]; ok && asked.Before(until) || asked.Before(c.emptied) {
		return
	}
	c.answers.Add(key, &cached{pool: pool.DB, fp: fp, resp: resp, until: asked.Add(cachedFor)})
}

// release forgets the answer, whatever database it came from.
func (c *cache) release(key Key, now time.Time) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.marks) > 0 && now.After(c.marks[0].until) {
		if m := c.marks[0]; c.released[m.key].Equal(m.until) { // else it was released again
			delete(c.released, m.key)
		}
		c.marks = c.marks[1:]
	}
	m := mark{key, now.Add(cachedFor)}
	c.released[key], c.marks = m.until, append(c.marks, m)
	c.answers.Remove(key)
}

// empty forgets all answers.
func (c *cache) empty(now time.Time) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.emptied = now
	c.answers.Purge()
}

// answer returns the same as [record.answer].
func (a *cached) answer(fp Fingerprint) (*Response, error) {
	if a.fp.differs(fp) {
		return nil, ErrMismatch
	}
	resp := a.resp
	return &resp, nil
}
