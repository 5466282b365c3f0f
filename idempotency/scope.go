package idempotency

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxKey is the longest key, in bytes. Tenant and principal may not be longer either.
const MaxKey = 255

// Scope says within what a key is unique. Equal keys in different scopes have nothing to do with each other.
type Scope struct {
	// Tenant is whose data it is. Default: Config.DefaultTenant; in package httpmw, that of its Tenant middleware before.
	Tenant string
	// Principal is who asks: the id of a user or of a client. It must stay the same when a token is refreshed. Required
	// unless Anonymous.
	Principal string
	// Anonymous says that every client that has the key may see its answer.
	Anonymous bool
	// Caller names the principal to operators: the number of a customer, a login. It is stored in clear while the outcome of a [StepOnce] is
	// open, so it should be no secret, and at no other time. The principal itself is stored as a hash only: it may be a token, and is personal.
	// It is no part of the key. Default: none.
	Caller string
	// Method and Path are what is asked for. Package httpmw fills each in from the request if it is empty.
	Method, Path string
	// Key is what the client chose, 1 to 255 bytes without control characters. Package httpmw fills it in.
	Key string
}

// Anonymous returns a scope without a principal, on purpose: each client that sends the same key to the same tenant, method and
// path gets the stored answer. It is for interfaces that know no users.
func Anonymous(tenant string) Scope { return Scope{Tenant: tenant, Anonymous: true} }

// Key is a scope that was checked and hashed. It is made by [Store.Key].
type Key struct {
	hash      [sha256.Size]byte
	tenant    string
	principal principalHash
	request   string // method and path
	caller    string
}

// String returns the beginning of the hash, which is safe to log.
func (k Key) String() string { return hex.EncodeToString(k.hash[:8]) }

// Tenant returns whose data it is: that of the scope, or the default.
func (k Key) Tenant() string { return k.tenant }

// Key checks a scope and hashes it. The errors are [ErrNoPrincipal] and [*ScopeError].
func (s *Store) Key(scope Scope) (Key, error) {
	if scope.Tenant == "" {
		scope.Tenant = s.cfg.DefaultTenant
	}
	if err := scope.validate(); err != nil {
		return Key{}, err
	}
	return Key{
		hash: scope.hash(), tenant: scope.Tenant, principal: hashPrincipal(scope.Tenant, scope.Principal),
		request: scope.request(), caller: shown(scope.Caller),
	}, nil
}

func (s *Scope) validate() error {
	switch {
	case s.Anonymous && s.Principal != "":
		return &ScopeError{"Principal", "is set although the scope is anonymous"}
	case !s.Anonymous && s.Principal == "":
		return ErrNoPrincipal
	case s.Key == "":
		return &ScopeError{"Key", "is empty"}
	}
	for _, f := range []struct{ name, value string }{
		{"Tenant", s.Tenant}, {"Principal", s.Principal}, {"Key", s.Key},
	} {
		switch {
		case len(f.value) > MaxKey:
			return &ScopeError{f.name, fmt.Sprintf("has %d bytes, at most %d are allowed", len(f.value), MaxKey)}
		case !utf8.ValidString(f.value):
			return &ScopeError{f.name, "is not valid UTF-8"}
		case strings.ContainsFunc(f.value, unicode.IsControl):
			return &ScopeError{f.name, "contains a NUL or another control character"}
		}
	}
	return nil
}

// maxShown is how long a text is, in bytes, that is kept for people while the outcome of a step is open.
const maxShown = 255

// request names the work for people: its method and path, without what a table or a terminal does not take.
func (s *Scope) request() string {
	return shown(strings.TrimSpace(s.Method + " " + s.Path))
}

// shown is as much of a text as is kept for people.
func shown(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(text[:min(len(text), maxShown)], "\uFFFD"))
}

// hash must never change: the rows that are stored are found by it.
func (s *Scope) hash() [sha256.Size]byte {
	anonymous := "0"
	if s.Anonymous {
		anonymous = "1"
	}
	return hashOf("oncebox.idempotency.1", s.Tenant, anonymous, s.Principal, s.Method, s.Path, s.Key)
}

// hashOf hashes each part behind its length, so that no two lists of parts have the same bytes.
func hashOf(parts ...string) [sha256.Size]byte {
	all := make([]byte, 0, 512) // mostly enough, and then it is not on the heap
	for _, part := range parts {
		all = binary.BigEndian.AppendUint64(all, uint64(len(part)))
		all = append(all, part...)
	}
	return sha256.Sum256(all)
}
