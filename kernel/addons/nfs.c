// SPDX-License-Identifier: GPL-2.0
/*
 * peerdma_nfs.ko: how would the bytes of a file of NFS go? The NFS client passes the pages of a
 * direct request unchanged to the transport, and may choose another transport for each part of it.
 * The RDMA transport maps them for its device, as a driver maps its requests, so they may be peer
 * pages. The others may not have them: a socket (TCP, UDP) passes them to any network card; a
 * server in this machine accesses them itself (localio); a pNFS layout has transports of its own;
 * Kerberos with integrity or privacy processes them with the CPU; and less than a page is copied
 * into the message by the CPU.
 *
 * All of that can change while the file is open, so it is probed before each request. New
 * transports of a client are of the same kind as its others, so what holds for all of them holds
 * while a request runs. Two exceptions are in Documentation/fabrics.md: localio that begins, and a
 * second address of a server that is added, meanwhile.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/nfs_fs.h>
#include <linux/rcupdate.h>
#include <linux/string.h>
#include <linux/sunrpc/addr.h>
#include <linux/sunrpc/auth.h>
#include <linux/sunrpc/clnt.h>
#include <linux/sunrpc/xprt.h>
#include <net/net_namespace.h>
#include <uapi/peerdma.h>

#include "routing/share.h"

#if IS_ENABLED(CONFIG_NFS_LOCALIO)
bool nfs_server_is_local(const struct nfs_client *client); /* exported; its header is not public */
#else
static bool nfs_server_is_local(const struct nfs_client *client)
{
	return false;
}
#endif

/* Properties of a client's transports. */
struct nfs_transports {
	u32 reason;
	struct sockaddr *server; /* of struct peerdma_share_server; sa_family 0: none yet */
};

static u32 nfs_probe_transport(struct rpc_xprt *xprt, struct nfs_transports *seen)
{
	const struct sockaddr *server = (struct sockaddr *)&xprt->addr;

	if (xprt->xprt_class->ident != XPRT_TRANSPORT_RDMA)
		return PEERDMA_REASON_NFS_TRANSPORT;
	/* Routes are resolved in the initial network namespace only. */
	if (!net_eq(xprt->xprt_net, &init_net))
		return PEERDMA_REASON_RDMA_ROUTE;
	/* Nothing but family, address and scope; false: not an address of IP. */
	if (!seen->server->sa_family)
		return rpc_copy_addr(seen->server, server) ? PEERDMA_REASON_NONE :
							     PEERDMA_REASON_RDMA_ROUTE;
	return rpc_cmp_addr(seen->server, server) ? PEERDMA_REASON_NONE :
						    PEERDMA_REASON_NFS_SERVERS;
}

static int nfs_each_transport(struct rpc_clnt *client, struct rpc_xprt *xprt, void *data)
{
	struct nfs_transports *seen = data;

	seen->reason = nfs_probe_transport(xprt, seen);
	return seen->reason ? -EXDEV : 0;
}

/*
 * RCU does not protect cl_auth: during a migration rpc_switch_client_transport() releases the old
 * one before its synchronize_rcu(). Only Kerberos frees it then: Documentation/fabrics.md, "Known
 * limitations of NFS over RDMA".
 */
static bool nfs_cpu_touches(const struct rpc_clnt *client)
{
	return test_bit(RPCAUTH_AUTH_DATATOUCH, &client->cl_auth->au_flags);
}

/* A server may require protected writes (SP4_MACH_CRED) whatever the mount options say. */
static bool nfs_is_protected(const struct nfs_server *server, const struct nfs_client *client)
{
#if IS_ENABLED(CONFIG_NFS_V4)
	if (test_bit(NFS_SP4_MACH_CRED_WRITE, &client->cl_sp4_flags))
		return true;
#endif
	return nfs_cpu_touches(server->client);
}

/* Called under RCU, which protects @client. */
static u32 nfs_server_reason(const struct nfs_server *server, const struct nfs_client *client)
{
#if IS_ENABLED(CONFIG_NFS_V4)
	if (READ_ONCE(server->pnfs_curr_ld))
		return PEERDMA_REASON_NFS_LAYOUT;
#endif
	if (nfs_server_is_local(client))
		return PEERDMA_REASON_NFS_LOCAL;
	if (nfs_is_protected(server, client))
		return PEERDMA_REASON_NFS_SECURITY;
	/*
	 * Less than a page is sent inline: copied by the CPU, or mapped like host memory. So are
	 * whole pages if root has raised the thresholds of client and server. Nothing exported
	 * tells those of a connection; `peerdma check` reads the client's.
	 */
	if (!PAGE_ALIGNED(server->rsize | server->wsize))
		return PEERDMA_REASON_NFS_SIZE;
	return PEERDMA_REASON_NONE;
}

/* A server may get another client at any time, by migration. */
static u32 nfs_probe_server(const struct nfs_server *server)
{
	u32 reason;

	rcu_read_lock();
	reason = nfs_server_reason(server, READ_ONCE(server->nfs_client));
	rcu_read_unlock();
	return reason;
}

/* A link-local address needs its interface, which %pIS prints only inside brackets. */
static void nfs_print(const struct peerdma_share_server *share_server, char *text)
{
	const struct sockaddr *server = (const struct sockaddr *)&share_server->address;
	int len = scnprintf(text, PEERDMA_SHARE_ADDRESS, "traddr=%pISc", server);
	const char *name = "/"; /* matches no device */
	struct net_device *dev;

	if (!rpc_get_scope_id(server))
		return;
	/* By name: the resolver tries names first, and a name may look like a number. */
	rcu_read_lock();
	dev = dev_get_by_index_rcu(&init_net, rpc_get_scope_id(server));
	if (dev && !strchr(dev->name, ','))
		name = dev->name;
	scnprintf(text + len, PEERDMA_SHARE_ADDRESS - len, "%%%s", name);
	rcu_read_unlock();
}

static u32 nfs_probe(struct inode *inode, struct peerdma_share_server *share_server)
{
	const struct nfs_server *server = NFS_SERVER(inode);
	struct nfs_transports seen = { .server = (struct sockaddr *)&share_server->address };
	u32 reason = nfs_probe_server(server);
	int err;

	if (reason)
		return reason;
	err = rpc_clnt_iterate_for_each_xprt(server->client, nfs_each_transport, &seen);
	if (seen.reason)
		return seen.reason;
	return err || !seen.server->sa_family ? PEERDMA_REASON_RDMA_ROUTE : PEERDMA_REASON_NONE;
}

static const struct peerdma_share_ops ops = {
	.probe = nfs_probe,
	.print = nfs_print,
};

static int __init peerdma_nfs_init(void)
{
	return peerdma_share_register(&ops);
}

static void __exit peerdma_nfs_exit(void)
{
	peerdma_share_unregister();
}

module_init(peerdma_nfs_init);
module_exit(peerdma_nfs_exit);

MODULE_DESCRIPTION("How the bytes of a file of NFS go, for peerdma");
MODULE_AUTHOR("The PeerDMA authors");
MODULE_LICENSE("GPL");
