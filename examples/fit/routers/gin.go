package routers

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

// Gin puts a middleware around one handler, which can be run more than once so.
func Gin(middleware Middleware, handler gin.HandlerFunc) gin.HandlerFunc {
	engine := gin.New()
	return func(c *gin.Context) {
		w, r := c.Writer, c.Request
		defer func() { c.Writer, c.Request = w, r }()
		r.Pattern = c.FullPath()
		middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c.Writer, c.Request = gin.CreateTestContextOnly(w, engine).Writer, r // gin's writer, around w
			handler(c)
			if c.Writer.Status() != http.StatusOK {
				c.Writer.WriteHeaderNow() // c.Status alone writes nothing
			}
		})).ServeHTTP(w, r)
	}
}
