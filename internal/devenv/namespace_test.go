package devenv

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// The answers of Pulsar 4.0.8.
const (
	noForce  = `{"reason":"Broker doesn't allow forced deletion of namespaces"}`
	notEmpty = `{"reason":"Cannot delete non empty namespace"}`
	notThere = `{"reason":"Namespace does not exist"}`
)

// script is an admin API that gives its answers in their order. The last one comes again and again.
type script struct {
	of    map[string][]answer // by method and path with its query
	asked []string
}

type answer struct {
	status int
	body   string
}

func (a *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request := r.Method + " " + r.URL.RequestURI()
	a.asked = append(a.asked, request)
	left := a.of[request]
	if len(left) == 0 {
		http.Error(w, request, http.StatusTeapot)
		return
	}
	if len(left) > 1 {
		a.of[request] = left[1:]
	}
	w.WriteHeader(left[0].status)
	_, _ = w.Write([]byte(left[0].body))
}

const (
	byForce     = "DELETE /admin/v2/namespaces/public/n?force=true"
	withoutIt   = "DELETE /admin/v2/namespaces/public/n"
	partitioned = "GET /admin/v2/persistent/public/n/partitioned"
	all         = "GET /admin/v2/persistent/public/n"
)

func TestRemoveNamespace(t *testing.T) {
	const order, odd = "DELETE /admin/v2/persistent/public/n/order/partitions?force=true", "DELETE /admin/v2/persistent/public/n/a%20b?force=true"
	empty := []answer{{200, `[]`}}
	for name, c := range map[string]struct {
		of   map[string][]answer
		want []string
		err  string
	}{
		"by force": {of: map[string][]answer{byForce: {{204, ""}}}, want: []string{byForce}},
		"is gone":  {of: map[string][]answer{byForce: {{404, notThere}}}, want: []string{byForce}},
		"topic by topic": {
			of: map[string][]answer{
				byForce: {{405, noForce}}, withoutIt: {{204, ""}},
				partitioned: {{200, `["persistent://public/n/order"]`}}, order: {{204, ""}},
				all: {{200, `["persistent://public/n/a b"]`}}, odd: {{404, ""}},
			},
			want: []string{byForce, partitioned, order, all, odd, withoutIt},
		},
		"a topic comes again": {
			of:   map[string][]answer{byForce: {{405, noForce}}, withoutIt: {{409, notEmpty}, {204, ""}}, partitioned: empty, all: empty},
			want: []string{byForce, partitioned, all, withoutIt, partitioned, all, withoutIt},
		},
		"went meanwhile": {
			of:   map[string][]answer{byForce: {{405, noForce}}, partitioned: {{404, notThere}}},
			want: []string{byForce, partitioned},
		},
		"topics come again for ever": {
			of:  map[string][]answer{byForce: {{405, noForce}}, withoutIt: {{409, notEmpty}}, partitioned: empty, all: empty},
			err: "DELETE /namespaces/public/n: 409 Conflict: " + notEmpty,
		},
		"is forbidden": {
			of:  map[string][]answer{byForce: {{405, noForce}}, partitioned: {{403, `{"reason":"no"}`}}},
			err: `GET /persistent/public/n/partitioned: 403 Forbidden: {"reason":"no"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := &script{of: c.of}
			server := httptest.NewServer(a)
			defer server.Close()
			err := (&PulsarServer{AdminURL: server.URL}).RemoveNamespace(t.Context(), "public/n")
			if c.err == "" {
				require.NoError(t, err)
				require.Equal(t, c.want, a.asked)
				return
			}
			require.ErrorContains(t, err, c.err)
			require.ErrorContains(t, err, "the Pulsar namespace public/n stays")
			require.ErrorContains(t, err, "forceDeleteNamespaceAllowed=true")
		})
	}
}
