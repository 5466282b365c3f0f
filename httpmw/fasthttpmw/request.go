package fasthttpmw

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"
)

// request makes a net/http request of a fasthttp request. It copies all strings, because fasthttp reuses their memory for the next request.
func request(parent context.Context, ctx *fasthttp.RequestCtx, route string) (*http.Request, error) {
	var converted http.Request
	if err := fasthttpadaptor.ConvertRequest(ctx, &converted, true); err != nil {
		return nil, fmt.Errorf("fasthttpmw: read the request: %w", err)
	}
	body := bytes.Clone(ctx.PostBody())
	r, err := http.NewRequestWithContext(parent, strings.Clone(converted.Method), strings.Clone(converted.RequestURI), io.NopCloser(bytes.NewReader(body)))
	if err != nil {
		return nil, fmt.Errorf("fasthttpmw: read the request: %w", err)
	}
	r.RequestURI, r.Host, r.RemoteAddr = strings.Clone(converted.RequestURI), strings.Clone(converted.Host), converted.RemoteAddr
	r.Proto, r.ProtoMajor, r.ProtoMinor = strings.Clone(converted.Proto), converted.ProtoMajor, converted.ProtoMinor
	r.ContentLength, r.TLS, r.Pattern = int64(len(body)), converted.TLS, strings.Clone(route)
	// As net/http's server does it for a request without a body.
	if len(body) == 0 {
		r.Body = http.NoBody
	}
	for name, values := range converted.Header {
		for _, value := range values {
			r.Header.Add(strings.Clone(name), strings.Clone(value))
		}
	}
	return r, nil
}
