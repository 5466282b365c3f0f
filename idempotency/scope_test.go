package idempotency_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/nightly"
)

func TestKeyRefusesScopesThatCannotBeTold(t *testing.T) {
	good := idempotency.Scope{Tenant: "acme", Principal: "u1", Method: "POST", Path: "/payments", Key: "k"}
	for name, tc := range map[string]struct {
		change func(*idempotency.Scope)
		field  string // "": ErrNoPrincipal
	}{
		"no principal":           {func(s *idempotency.Scope) { s.Principal = "" }, ""},
		"anonymous with a name":  {func(s *idempotency.Scope) { s.Anonymous = true }, "Principal"},
		"no key":                 {func(s *idempotency.Scope) { s.Key = "" }, "Key"},
		"key too long":           {func(s *idempotency.Scope) { s.Key = strings.Repeat("k", 256) }, "Key"},
		"key with NUL":           {func(s *idempotency.Scope) { s.Key = "secret\x00" }, "Key"},
		"tenant not UTF-8":       {func(s *idempotency.Scope) { s.Tenant = "secret\xff" }, "Tenant"},
		"principal with newline": {func(s *idempotency.Scope) { s.Principal = "secret\n" }, "Principal"},
	} {
		t.Run(name, func(t *testing.T) {
			scope := good
			tc.change(&scope)
			_, err := idempotency.NewStore(nil).Key(scope)
			if tc.field == "" {
				require.ErrorIs(t, err, idempotency.ErrNoPrincipal)
				return
			}
			var refused *idempotency.ScopeError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, tc.field, refused.Field)
			require.NotContains(t, err.Error(), "secret", "a refused value is not repeated")
		})
	}
	good.Key = strings.Repeat("k", idempotency.MaxKey)
	_, err := idempotency.NewStore(nil).Key(good)
	require.NoError(t, err)
}

// The hash of a scope is how the rows that are stored are found.
func TestKeyHashIsFrozen(t *testing.T) {
	for want, scope := range map[string]idempotency.Scope{
		"3a9f9861c84639fc": {Tenant: "acme", Principal: "u1", Method: "POST", Path: "/payments", Key: "8e03"},
		"cb999a6a18748382": {Anonymous: true, Method: "POST", Path: "/payments", Key: "8e03"},
	} {
		key, err := idempotency.NewStore(nil).Key(scope)
		require.NoError(t, err)
		require.Equal(t, want, key.String())
	}
}

func TestDefaultTenantIsATenantLikeAnother(t *testing.T) {
	store := idempotency.NewStore(&idempotency.Config{DefaultTenantID: "acme"})
	unnamed, err := store.Key(idempotency.Scope{Principal: "u", Key: "k"})
	require.NoError(t, err)
	named, err := store.Key(idempotency.Scope{Tenant: "acme", Principal: "u", Key: "k"})
	require.NoError(t, err)
	require.Equal(t, named, unnamed)
}

// Moving bytes from one part of a scope to the next gives another key, as does any other difference.
func TestDifferentScopesHaveDifferentKeys(t *testing.T) {
	store := idempotency.NewStore(nil)
	part := rapid.StringMatching(`[a-c0/]{1,3}`)
	scope := rapid.Custom(func(t *rapid.T) idempotency.Scope {
		s := idempotency.Scope{Tenant: part.Draw(t, "tenant"), Method: part.Draw(t, "method"), Path: part.Draw(t, "path"), Key: part.Draw(t, "key")}
		if s.Anonymous = rapid.Bool().Draw(t, "anonymous"); !s.Anonymous {
			s.Principal = part.Draw(t, "principal")
		}
		return s
	})
	nightly.Check(t, 100, 10_000, func(t *rapid.T) {
		a, b := scope.Draw(t, "a"), scope.Draw(t, "b")
		keyA, err := store.Key(a)
		require.NoError(t, err)
		keyB, err := store.Key(b)
		require.NoError(t, err)
		require.Equal(t, a == b, keyA == keyB)
	})
}

func TestFingerprintTellsPartsApart(t *testing.T) {
	prints := []idempotency.Fingerprint{
		idempotency.NewFingerprint("t", []byte("ab"), []byte("c")),
		idempotency.NewFingerprint("t", []byte("a"), []byte("bc")),
		idempotency.NewFingerprint("t", []byte("abc")),
		idempotency.NewFingerprint("t", []byte("abc"), nil),
		idempotency.NewFingerprint("tabc"),
	}
	sums := map[[32]byte]bool{}
	for _, p := range prints {
		sums[p.Sum] = true
	}
	require.Len(t, sums, len(prints))
}

func TestConfigValidateNamesTheField(t *testing.T) {
	err := (&idempotency.Config{TTL: -2, PurgeBatch: -1, DefaultTenantID: "\n"}).Validate()
	for _, field := range []string{"TTL", "PurgeBatch", "DefaultTenantID"} {
		require.ErrorContains(t, err, "Config."+field)
	}
	require.NoError(t, (&idempotency.Config{TTL: idempotency.KeepForever}).Validate())
	require.NoError(t, (&idempotency.Config{}).Validate())
}
