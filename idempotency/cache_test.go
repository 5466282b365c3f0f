package idempotency

import (
	"database/sql"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
)

func cacheAndKeys(t *testing.T, size int) (*cache, []Key) {
	t.Helper()
	s := NewStore(&Config{Cache: size})
	keys := make([]Key, 3)
	for i := range keys {
		var err error
		keys[i], err = s.Key(Scope{Principal: "u1", Key: strconv.Itoa(i)})
		require.NoError(t, err)
	}
	return s.cache, keys
}

var fp = NewFingerprint("t")

// pool is a pool that is never connected.
func pool() *bun.DB { return bun.NewDB(&sql.DB{}, pgdialect.New()) }

func TestCacheForgets(t *testing.T) {
	c, keys := cacheAndKeys(t, 2)
	db, now := pool(), time.Now()
	for i, key := range keys {
		c.put(db, key, fp, Response{Status: 200 + i}, now)
	}
	require.Nil(t, c.get(db, keys[0], now), "there is room for two")
	require.NotNil(t, c.get(db, keys[1], now))
	require.NotNil(t, c.get(db, keys[2], now.Add(cachedFor)))
	require.Nil(t, c.get(db, keys[2], now.Add(cachedFor+1)), "somebody may have removed the row")
	require.Nil(t, c.get(pool(), keys[1], now), "another database has another answer")
	require.Nil(t, c.get(bun.Tx{}, keys[1], now))
}

func TestCacheLeavesLargeAnswersToTheTable(t *testing.T) {
	c, keys := cacheAndKeys(t, 2)
	db, now := pool(), time.Now()
	for name, resp := range map[string]Response{
		"body":   {Body: make([]byte, cachedBytes+1)},
		"header": {Header: map[string][]string{"Link": {strings.Repeat("x", cachedBytes), "y"}}},
	} {
		c.put(db, keys[0], fp, resp, now)
		require.Nil(t, c.get(db, keys[0], now), name)
	}
	c.put(db, keys[0], fp, Response{Body: make([]byte, cachedBytes)}, now)
	require.NotNil(t, c.get(db, keys[0], now))
}

// A look-up that began before the release may end after it.
func TestReleasedKeyIsNotCachedForAWhile(t *testing.T) {
	c, keys := cacheAndKeys(t, 2)
	db, now := pool(), time.Now()
	c.put(db, keys[0], fp, Response{Status: 200}, now)
	c.release(keys[0], now)
	require.Nil(t, c.get(db, keys[0], now))
	c.put(db, keys[0], fp, Response{Status: 200}, now.Add(cachedFor-1))
	require.Nil(t, c.get(db, keys[0], now))
	later := now.Add(cachedFor)
	c.put(db, keys[0], fp, Response{Status: 200}, later)
	require.NotNil(t, c.get(db, keys[0], later))
	c.release(keys[1], later.Add(1))
	require.Len(t, c.released, 1, "marks go as well")
}

// A key that is released again is not cached before the last of its marks ends.
func TestKeyThatIsReleasedAgain(t *testing.T) {
	c, keys := cacheAndKeys(t, 2)
	db, now := pool(), time.Now()
	c.release(keys[0], now)
	c.release(keys[0], now.Add(time.Second))
	c.release(keys[1], now.Add(cachedFor+1)) // the first mark goes
	c.put(db, keys[0], fp, Response{Status: 200}, now.Add(cachedFor+1))
	require.Nil(t, c.get(db, keys[0], now))
	require.Len(t, c.released, 2)
	require.Len(t, c.marks, 2)
	c.release(keys[1], now.Add(2*cachedFor+2))
	require.Len(t, c.released, 1)
	require.Len(t, c.marks, 1)
}

// A release costs the same however much is cached: a release of many keys must not keep requests from the cache meanwhile.
func TestReleaseDoesNotGoThroughTheCache(t *testing.T) {
	c, keys := cacheAndKeys(t, 4096)
	s := NewStore(nil)
	db, now := pool(), time.Now()
	for i := range 4096 {
		key, err := s.Key(Scope{Principal: "u1", Key: strconv.Itoa(i)})
		require.NoError(t, err)
		c.put(db, key, fp, Response{Status: 200}, now)
	}
	require.Zero(t, testing.AllocsPerRun(1000, func() { c.release(keys[0], now) }), "a list of all keys")
}

func TestNoCache(t *testing.T) {
	c, keys := cacheAndKeys(t, -1)
	db := pool()
	c.put(db, keys[0], fp, Response{Status: 200}, time.Now())
	require.Nil(t, c.get(db, keys[0], time.Now()))
	c.release(keys[0], time.Now())
}

// Who adds a line to the answer adds it to none of the others.
func TestCachedHeadersAreNobodysToExtend(t *testing.T) {
	c, keys := cacheAndKeys(t, 2)
	db := pool()
	lines := append(make([]string, 0, 8), "a")
	c.put(db, keys[0], fp, Response{Status: 200, Header: map[string][]string{"Vary": lines}}, time.Now())
	got, err := c.get(db, keys[0], time.Now()).answer(fp)
	require.NoError(t, err)
	_ = append(got.Header["Vary"], "b")
	require.Empty(t, lines[:2][1])
}
