package pagetest

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRequest(t *testing.T) {
	post := Request(t, "curl -i -X POST -H 'Idempotency-Key: key 1' http://127.0.0.1:8080/orders/o-1?a=b   # 201 Created", "http://host:1")
	require.Equal(t, http.MethodPost, post.Method)
	require.Equal(t, "http://host:1/orders/o-1?a=b", post.URL.String())
	require.Equal(t, http.Header{"Idempotency-Key": {"key 1"}}, post.Header)

	get := Request(t, "curl localhost:8080/sales", "http://host:1")
	require.Equal(t, http.MethodGet, get.Method)
	require.Equal(t, "http://host:1/sales", get.URL.String())
}
