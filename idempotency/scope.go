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

// Scope is the namespace of a key. Equal keys in different scopes are independent of each other.
type Scope struct {
	// Tenant is the owner of the data. Default: Config.DefaultTenantID; in package httpmw, first that of its Tenant middleware.
	Tenant string
	// Principal is the id of the user or client that sends the request. It must stay the same when a token is refreshed. Required unless Anonymous.
	Principal string
	// Anonymous says that every client that has the key may see its answer.
	Anonymous bool
	// Caller names the principal for operators: the number of a customer, a login. It is stored in clear while the outcome of a [StepOnce] is open,
	// and at no other time, so it should not be secret. The principal itself is stored as a hash only, because it is personal and may be a token.
	// Caller does not belong to the key. Default: none.
	Caller string
	// Method and Path name the operation. Package httpmw fills each in from the request if it is empty.
	Method, Path string
	// Key is the key that the client chose, 1 to 255 bytes without control characters. Package httpmw fills it in.
	Key string
}

// Anonymous returns a scope without a principal, on purpose: each client that sends the same key to the same tenant, method and
// path gets the stored answer. It is for interfaces that know no users.
func Anonymous(tenant string) Scope { return Scope{Tenant: tenant, Anonymous: true} }

// Key is a scope that was checked and hashed. [Store.Key] makes it.
type Key struct {
	hash      [sha256.Size]byte
	tenant    string
	principal principalHash
	request   string // method and path
	caller    string
}

// String returns the beginning of the hash, which is safe to log.
func (k Key) String() string { return hex.EncodeToString(k.hash[:8]) }

// Tenant returns the tenant of the scope, or the default.
func (k Key) Tenant() string { return k.tenant }

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

// maxShown is the longest text, in bytes, that is kept for operators while the outcome of a step is open.
const maxShown = 255

// request names the work for operators: its method and path, without characters that a table or a terminal cannot show.
func (s *Scope) request() string {
	return shown(strings.TrimSpace(s.Method + " " + s.Path))
}

// shown returns the part of a text that is kept for operators.
func shown(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(text[:min(len(text), maxShown)], "\uFFFD"))
}

// hash must never change: stored rows are found by it.
func (s *Scope) hash() [sha256.Size]byte {
	anonymous := "0"
	if s.Anonymous {
		anonymous = "1"
	}
	return hashOf("oncebox.idempotency.1", s.Tenant, anonymous, s.Principal, s.Method, s.Path, s.Key)
}

// hashOf hashes each part with its length before it, so that no two lists of parts have the same bytes.
func hashOf(parts ...string) [sha256.Size]byte {
	all := make([]byte, 0, 512) // mostly enough, and then it is not on the heap
	for _, part := range parts {
		all = binary.BigEndian.AppendUint64(all, uint64(len(part)))
		all = append(all, part...)
	}
	return sha256.Sum256(all)
}
