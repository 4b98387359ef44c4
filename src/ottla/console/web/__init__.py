"""Shows a cluster to browsers: pages, one live stream for each of them, and what people ask and do there.

- `server`: a listener, and how it ends
- `application`: which path is served by whom
- `guard`: who may ask at all: hosts, origins, headers
- `viewer`: who looks: clients with the rights of one user, and a watch
- `stream`: what changes, as server-sent events
- `pages`: what each page gets
- `answers`: requests, their parameters, and errors as answers
- the other modules: what one page asks for or does

One stream per page carries everything that changes by itself. It is a stream of server-sent events, not a WebSocket: nothing
but news goes to the browser, browsers open it again by themselves, and it is plain HTTP to cookies, proxies and uvicorn. A
page that reads slowly makes nothing grow: it gets one answer for all that happened meanwhile.
"""
